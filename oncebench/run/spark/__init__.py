"""What the suite prepares for the Spark of a run."""
