"""Linear layers of every scheme; the file of the same name is the door."""
