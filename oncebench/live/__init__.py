"""Displays a run while it is in progress."""
