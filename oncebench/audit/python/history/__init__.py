"""What the record says about the order in which events were read, and about sessions that timed out."""
