"""The first auditor, in Python: what the record shows was lost, duplicated, torn or wrong."""
