"""Reports of runs: one JSON object per run, its figures, comparisons and tables."""
