"""Publishes what is stored in results/runs: Markdown, CSV, and one static page that opens from disk."""
