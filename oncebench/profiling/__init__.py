"""Samples the processes of a running pipeline, and splits the CPU time of a batch by part."""
