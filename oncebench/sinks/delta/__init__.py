"""Delta Lake sink: rows are appended to a table, one commit per batch."""
