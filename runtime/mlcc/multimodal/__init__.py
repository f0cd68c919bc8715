"""Images in prompts: decoding, resizing, tiles, and the tokens that stand for them."""
