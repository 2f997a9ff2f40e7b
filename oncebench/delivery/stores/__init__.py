"""Where a checkpoint and its journal are: one small interface, for a mounted folder and for an object store."""
