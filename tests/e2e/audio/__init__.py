"""Speech over HTTP, from files to text."""
