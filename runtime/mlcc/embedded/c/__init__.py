"""The engine inside a C program: the implementation of `mobile/c/include/mlcc.h`.

C++ owns the API functions, the threads and the event queues; Python runs in one thread with one
event loop, for all models. `process.py` is that loop and takes commands, `model.py` is one model
from loading to closing, `engine.py` steps its engine in the event loop, `tokenizer.py` is the
host's tokenizer, `codes.py` has the constants of the header.
"""
