"""What llama.cpp's own server speaks, in OpenAI's words and back. Pure translation."""
