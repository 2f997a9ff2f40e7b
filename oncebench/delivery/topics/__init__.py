"""Kafka topics before and during a job: existence, limits, and replicas."""
