"""Stored responses and conversations of the Responses API."""
