"""Does the pipeline's work on Kafka Streams: one Java process with a thread per partition."""
