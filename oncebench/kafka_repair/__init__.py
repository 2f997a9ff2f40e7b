"""Repairs what a Kafka client cannot repair itself. It imports nothing else of the project."""
