"""Connects a query to a sink: the start of a driver, and the delivery of each batch."""
