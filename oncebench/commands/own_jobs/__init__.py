"""The commands for a job of your own, which the suite does not run."""
