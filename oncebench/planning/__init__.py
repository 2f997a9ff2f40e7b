"""Plans the size of a pipeline from measured runs.

The size is cores, partitions, trigger and transaction time-out.
"""
