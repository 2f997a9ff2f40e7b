"""Observes a run from outside: when a committed reader sees rows, and resource use."""
