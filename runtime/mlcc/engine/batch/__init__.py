"""The step's contract between engine, executors and compiler: tables, columns and ports."""
