"""A plain pipeline and a plain judge, to compare both auditors with: few lines, slow."""
