"""Figures computed from one run: checkpoint, recovery, timeline, price."""
