"""Tools for maintainers: lock files, plots, measurements. Not part of the wheel."""
