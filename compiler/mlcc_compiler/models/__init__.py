"""One file per architecture (config and layer); the rest of the model is shared."""
