"""The proofs: protocol model, crash states, three judges, mutants. Not in the wheel."""
