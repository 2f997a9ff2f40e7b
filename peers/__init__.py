"""Other engines on the same work, in the rows of the same tables."""
