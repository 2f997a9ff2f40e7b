"""Scenario files: the settings of a run, kept in a TOML file that a team can review."""
