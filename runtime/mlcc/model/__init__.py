"""An artifact opened to be run: its text side, its memory, its executor, one answer at a time."""
