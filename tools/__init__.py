"""Tools for maintainers: lock files, plots, measurements of the suite itself. Not part of the wheel."""
