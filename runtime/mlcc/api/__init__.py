"""The API as data and plain functions: requests, responses, errors and chat templates.

Standard library and jinja2 only, no files and no sockets, so that the server, the browser worker
and the phone library share it.
"""
