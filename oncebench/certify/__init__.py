"""Certifies a sink of the user: which guarantee it keeps, for which faults, with the evidence."""
