"""experimental: tensor parallelism over several GPUs, with NCCL.

No GPU has run it: its tests use an emulated device and a stand-in for NCCL.
"""
