"""Measurements that need more than one run: series of cells, timed batches, the search for a rate."""
