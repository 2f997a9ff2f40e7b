"""Where a checkpoint and its journal are: in a mounted folder or an object store.

Both have one small interface.
"""
