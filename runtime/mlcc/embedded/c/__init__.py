"""The engine inside a program that speaks C: what is behind `mobile/c/include/mlcc.h`.

C++ owns the doors, the threads and the events that wait; Python runs in one thread with one event
loop, for all models. `process.py` is that loop and takes commands, `hosted.py` is one model from
loading to its end, `turns.py` runs its engine between turns of the loop, `tokenizer.py` is the
host's tokenizer, `codes.py` the numbers of the header.
"""
