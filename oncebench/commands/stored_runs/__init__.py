"""The commands that read stored runs and reports, and run nothing."""
