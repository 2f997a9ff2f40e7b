"""The system under test: one Structured Streaming pipeline, run under each delivery guarantee into each sink."""
