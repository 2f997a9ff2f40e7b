"""Catalogs that hold the table: an SQLite file in a local warehouse, or a REST catalog."""
