"""The sinks, one folder each. Import a sink by its module, or find it in `registry`."""
