"""The servers of a run: found or started once, shared by several cells, always ended."""
