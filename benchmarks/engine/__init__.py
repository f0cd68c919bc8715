"""One engine in this process: the parts of a step, long contexts, what features cost."""
