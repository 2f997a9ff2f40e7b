"""Repairs a Kafka client that cannot connect again by itself. It imports nothing else of the project."""
