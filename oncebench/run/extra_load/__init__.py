"""Events besides the load.

Events before the load warm the pipeline up. Events after the load close event-time windows.
"""
