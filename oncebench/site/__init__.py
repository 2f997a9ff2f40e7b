"""Publishes the reports in results/runs: Markdown, CSV and a static page."""
