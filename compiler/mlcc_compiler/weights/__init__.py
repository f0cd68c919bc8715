"""From a checkpoint's tensors to packed weights: name maps, checks, conversion, shards."""
