"""Transactions that a job has left open in its sink's server, and who may end them."""
