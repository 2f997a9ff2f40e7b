"""The pipeline on a cluster: its code, jars and address for executors on other machines, and their last words."""
