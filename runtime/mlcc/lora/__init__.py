"""Reads LoRA adapters from Hugging Face PEFT folders and fits them to a compiled model.

Standard library only. `peft_config` reads the configuration and `peft` the matrices; `fit` places
them in the slots on the device. The compiler uses the first two for `--merge-lora`.
"""
