"""Does the pipeline's work on Apache Flink: one Java job in a one-process mini-cluster."""
