"""The proofs: protocol model, crash-state search, mutants. They are not part of the wheel."""
