"""Reports of runs: one JSON object per run, the figures in it, comparisons of runs, and tables."""
