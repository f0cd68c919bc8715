"""Sound: files, rules of timestamps, and forms of answers."""
