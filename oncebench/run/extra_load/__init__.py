"""Events besides the load: before it, to warm the pipeline up, and after it, to close event-time windows."""
