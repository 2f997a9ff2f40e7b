"""Tables for the terminal, Markdown and CSV."""
