"""Judges a record: pure functions from what was recorded to findings and a verdict."""
