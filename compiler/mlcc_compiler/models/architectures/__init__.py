"""Model architectures, a file each: configuration and forward."""
