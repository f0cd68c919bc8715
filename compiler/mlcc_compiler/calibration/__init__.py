"""Calibration: activation statistics, sensitivity and GPTQ for quantizing a model's weights."""
