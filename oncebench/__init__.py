"""oncebench measures what a delivery guarantee costs, and audits what it buys."""
