"""Apache Flink on the work of the pipeline: one Java job in a local mini-cluster of one process."""
