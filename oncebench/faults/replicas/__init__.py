"""Faults that take one broker of several away, and the roles by which they find it."""
