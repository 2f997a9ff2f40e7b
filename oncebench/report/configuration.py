"""Configurations (sink, guarantee, variant) in the order of lists and tables.

Promise: deliberately broken configurations come last, each with the anomaly code that it must produce.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from oncebench.lab.engine import SPARK
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


class RunKind(NamedTuple):
    """The workload, the cluster and the checkpoint of a run.

    Runs of two kinds never share a table of faults.

    Attributes:
        workload: what the pipeline computes.
        workers: the workers of the run's own Spark cluster; 0: it has none.
        in_object_store: whether the checkpoint is in an object store.
    """

    workload: str = SESSIONS
    workers: int = 0
    in_object_store: bool = False

    @property
    def text(self) -> str:
        """The kind behind a comma, for titles: `, windows, cluster of 2`; empty for the usual kind."""
        workload = "" if self.workload == SESSIONS else f", {self.workload}"
        cluster = f", cluster of {self.workers}" if self.workers else ""
        return workload + cluster + (", checkpoint in an object store" if self.in_object_store else "")


USUAL = RunKind()


def run_kind_of(report: Report) -> RunKind:
    """The kind of a report's run; older reports have the usual one."""
    config = report.get("config", {})
    return RunKind(config.get("workload", SESSIONS), config.get("workers", 0), bool(config.get("checkpoint")))


def variant_of(report: Report) -> Variant:
    """The guarantee and variant of a report, without its sink."""
    return configuration_of(report)[1:]


def engine_name(report: Report) -> str:
    """The name of the run's engine; older reports are of Spark."""
    return str((report.get("environment", {}).get("engine") or {}).get("name", SPARK.name))


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
