"""One file for each way in which models want images, named as transformers names it."""
