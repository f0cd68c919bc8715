"""A loaded model: tokenizer and chat template, memory planning, engine drivers, sessions."""
