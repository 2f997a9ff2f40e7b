"""The order of guarantees and variants in tables: weakest guarantee first, then by name."""

from __future__ import annotations

from collections.abc import Iterable

from oncebench.delivery.contract import GUARANTEES, Support


def order_of(guarantee: str, variant: str) -> tuple[int, str]:
    """The sort key of a guarantee and its variant."""
    return GUARANTEES.index(guarantee), variant


def ordered(supports: Iterable[Support]) -> list[Support]:
    """The supports of a sink in that order."""
    return sorted(supports, key=lambda support: order_of(support.guarantee, support.variant))
