"""Measurements beyond one run: series of cells, timed batches, the search for a rate."""
