"""A model of the delivery protocols in plain Python, and an exhaustive search through it."""
