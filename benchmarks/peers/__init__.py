"""Whole models beside llama.cpp, OpenVINO, transformers and onnxruntime."""
