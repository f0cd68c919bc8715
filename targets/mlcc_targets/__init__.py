"""One file per target: a data row and how to link. Imports nothing of TVM or of mlcc."""
