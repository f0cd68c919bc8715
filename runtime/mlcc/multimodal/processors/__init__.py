"""One file for each way in which models want pictures, named as transformers names it."""
