"""The sinks: one file each, found by `registry`; nothing is imported here, for workers import what they need only."""
