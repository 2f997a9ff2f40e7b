"""Plans the size of a pipeline from measured runs: cores, partitions, trigger and transaction time-out."""
