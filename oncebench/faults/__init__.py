"""Faults that are injected into a run while the pipeline stands still at a failpoint."""
