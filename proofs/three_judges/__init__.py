"""A plain pipeline and a plain judge: few lines, slow, and against which both auditors are compared."""
