"""Figures that are computed from one run: checkpoint, recovery, timeline, price."""
