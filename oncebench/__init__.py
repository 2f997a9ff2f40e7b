"""oncebench measures what a delivery guarantee costs, and audits what it buys."""

from oncebench.delivery.failpoints import failpoint

__all__ = ["failpoint"]
