"""Decides by error code whether a restart can mend a failure: one table per client library."""
