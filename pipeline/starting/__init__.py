"""Checks the input and the output at a start, and the input while the query runs."""
