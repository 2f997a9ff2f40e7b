"""oncebench measures what a delivery guarantee costs, and audits what it buys."""

from oncebench.delivery.own_points import failpoint

__all__ = ["failpoint"]
