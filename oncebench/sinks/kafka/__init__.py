"""Kafka sink: at-most-once, at-least-once, and exactly-once by transactions."""
