"""Kafka topics before and during a job: whether they exist, their limits, and their replicas."""
