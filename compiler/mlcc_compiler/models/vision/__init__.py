"""Vision towers: encoders of images whose rows enter a language model's prompt."""
