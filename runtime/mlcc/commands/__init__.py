"""Subcommands of `mlcc`, one file each, found through the entry points `mlcc.commands`."""
