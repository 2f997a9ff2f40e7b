"""Comparisons of several runs: ratios with intervals, sweeps, sustained rates."""
