"""SQLite sink: the smallest sink, kept as the example for your own."""
