"""Kafka: a broker that the suite starts, or the user's own cluster."""
