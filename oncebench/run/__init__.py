"""Runs cells: load, pipeline, observer and faults together, on services that are reaped at the end."""
