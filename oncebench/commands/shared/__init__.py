"""Options, interruption and failure reports for several commands."""
