"""Runs a cell: load, pipeline, observer and faults together, and records what happens."""
