"""The order in which events were read, and the sessions that timed out, from the record."""
