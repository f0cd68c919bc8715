"""The OpenAI surface as data and plain functions: requests, answers, errors, chat templates.

Standard library and jinja2 only, no file and no socket, so that the server, the browser worker and
the phone library share it.
"""
