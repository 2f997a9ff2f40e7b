"""Which driver of a sink_id is the newest one in a Kafka cluster."""
