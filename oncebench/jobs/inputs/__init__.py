"""Compares the input topic of a job with what its checkpoint remembers of it."""
