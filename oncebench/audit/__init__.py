"""Audits a record: pure functions from what a run recorded to findings and a verdict."""
