"""Watches a run from outside: what a committed reader sees and when, and what each component uses."""
