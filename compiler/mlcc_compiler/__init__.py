"""mlcc's compiler: a checkpoint goes in, a library and weights for one device come out."""
