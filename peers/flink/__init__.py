"""Does the pipeline's work on Apache Flink: one Java job in a mini-cluster of one process."""
