"""Runs every engine under every guarantee with the same work, for one table."""
