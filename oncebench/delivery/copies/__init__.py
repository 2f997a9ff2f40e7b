"""Copies of rejected records: their headers, their size, and the originals that they are made from."""
