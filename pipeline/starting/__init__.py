"""What a start checks before the query: input, output, and what is left of both."""
