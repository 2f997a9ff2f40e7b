"""Measurements that are not one run of one cell."""
