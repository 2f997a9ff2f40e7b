"""The SQL auditor: counts what the Python auditor counts, from the files, without shared code."""
