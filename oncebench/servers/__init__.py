"""Servers of a run: Kafka, PostgreSQL and the servers of packages.

The suite starts a server, or uses the user's own.
"""
