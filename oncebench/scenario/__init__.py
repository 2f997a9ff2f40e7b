"""Everything that can be run, as data: cells, profiles, the fault matrix, sweeps."""
