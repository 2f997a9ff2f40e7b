"""The system under test: one Structured Streaming job for every guarantee and every sink."""
