"""Model architectures: one file each (config and layer); the rest of the model is shared."""
