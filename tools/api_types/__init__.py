"""The API's requests and answers as types of other languages, from the one schema."""
