"""The SQL auditor: counts what the Python auditor counts, and shares no code with it."""
