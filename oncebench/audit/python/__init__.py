"""The Python auditor: finds what was lost, duplicated, torn or wrong."""
