"""Configurations (sink, guarantee, variant) in the order of lists and tables.

Promise: deliberately broken configurations come last, each with the anomaly code that it must produce.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncebench.report.schema import Report
from oncebench.scenario.order import order_of
from oncebench.scenario.supports import expected_codes
from pipeline.config import SESSIONS

Configuration = tuple[str, str, str]  # sink, guarantee, variant
Variant = tuple[str, str]  # guarantee, variant


def configuration_of(report: Report) -> Configuration:
    """The configuration of a report."""
    cell = report["cell"]
    return cell["sink"], cell["guarantee"], cell["variant"]


def workload_of(report: Report) -> str:
    """The workload of a report; older reports are of sessions."""
    return report.get("config", {}).get("workload", SESSIONS)


def variant_of(report: Report) -> Variant:
    """The guarantee and variant of a report, without its sink."""
    return configuration_of(report)[1:]


def configurations_of(reports: Iterable[Report]) -> dict[Configuration, str]:
    """Every configuration in its order, with the anomaly codes that it must produce.

    Empty text: the configuration must keep its promise.
    """
    codes = {configuration_of(report): " ".join(sorted(expected_codes(report))) for report in reports}
    return {each: codes[each] for each in sorted(codes, key=lambda each: (bool(codes[each]), place_of(each)))}


def place_of(configuration: Configuration) -> tuple[Any, ...]:
    """The sort key of a configuration: the sink, then the order of guarantees, then the variant."""
    sink, guarantee, variant = configuration
    return sink, order_of(guarantee, variant)
