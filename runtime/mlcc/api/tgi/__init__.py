"""The API of Hugging Face's text-generation-inference (TGI), translated to OpenAI's and back."""
