"""llama.cpp's server API, translated to OpenAI's and back. Plain values only."""
