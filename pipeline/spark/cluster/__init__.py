"""The pipeline on a cluster of other machines.

The package gives executors the code, the jars and the address, and reports their last words.
"""
