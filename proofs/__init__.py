"""What proves the product: protocol model, crash-state search, mutants. Not part of the wheel."""
