"""Starts or finds the servers that several runs share, and always stops what it started."""
