"""Failures that a restart cannot mend, and failures that pass by themselves."""
