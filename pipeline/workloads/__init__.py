"""The queries of workloads other than sessions, and the choice among all of them."""
