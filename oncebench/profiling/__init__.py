"""Profiles a running pipeline: samples its processes, and splits the CPU time of a batch by part."""
