"""The right answers of workloads other than sessions, and the choice among all of them."""
