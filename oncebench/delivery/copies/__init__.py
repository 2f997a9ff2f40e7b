"""Copies of rejected records: their headers, their size, and their originals."""
