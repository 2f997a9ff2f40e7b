"""Prepares the Spark of every pipeline that the suite starts."""
