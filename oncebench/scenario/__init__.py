"""All possible runs as data: cells, profiles, the fault matrix, sweeps."""
