"""Executors of several ranks: processes on CPUs, NCCL on GPUs."""
