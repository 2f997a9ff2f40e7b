"""The tables of error codes, and what the end of a job says."""
