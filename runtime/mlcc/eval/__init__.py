"""What a compiled model is worth: how good its answers are, and where its time goes."""
