"""The pipeline on a cluster of other machines.

The package gives executors the code, the jars and the driver's address. It reports why an executor has ended.
"""
