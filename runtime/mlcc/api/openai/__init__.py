"""OpenAI's API: requests, responses and errors as Python types."""
