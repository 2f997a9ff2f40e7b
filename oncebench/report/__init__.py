"""Reports what was measured and judged: one JSON object per run, tables, comparisons in pairs."""
