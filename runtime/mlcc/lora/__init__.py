"""Adapters from files: Hugging Face PEFT's folders, read and fitted to a compiled model.

Standard library only. `peft_config` reads what a folder says of itself, `peft` its matrices, `fit`
says where they go on a device. The compiler merges with the first two (`--merge-lora`).
"""
