"""The form of a stored report: which fields the tables and the summary rely on.

Promise: a table and nothing but a table; what `make_report` makes fits it, and what fits it can be shown.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator
from typing_extensions import TypedDict  # pydantic takes that of `typing` only from Python 3.12

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.verdict import BROKEN, KEPT, UNKNOWN, VACUOUS
from oncebench.delivery.failpoints import parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.record.schema import Guarantee, Sink
from oncebench.record.validation import Count, one_of
from oncebench.scenario.fault_matrix import RANDOM_KILL


def _fault(text: str) -> str:
    if text != RANDOM_KILL and (action := parse_fault(text).action) not in FAULTS:
        raise ValueError(f"no nemesis is called {action!r}")
    return text


def _timed(fault: _Fault) -> _Fault:
    if fault["hit"] and fault.get("t_us", 0) is None:
        raise ValueError("a fault that was hit has a time t_us")
    return fault


def _command(text: str) -> str:
    shlex.split(text)  # ValueError: a quotation that does not end
    return text


_Figure = float | None
_Cell = TypedDict(
    "_Cell",
    {
        "sink": Sink,
        "guarantee": Guarantee,
        "variant": str,
        "faults": list[str],
        "random_kills": Count,
        "open_sessions": NotRequired[Count],  # older reports had none
    },
)
_Sessions = TypedDict("_Sessions", {"acknowledged": Count, "finished": Count})
_Rows = TypedDict("_Rows", {"expected": Count, "visible": Count, "lost": Count, "duplicated": Count})
_Throughput = TypedDict("_Throughput", {"events_per_s": _Figure})
_Latency = TypedDict(
    "_Latency", {"n": Count, "p50": _Figure, "p95": _Figure, "p99": _Figure, "p999": _Figure, "max": _Figure}
)
_Batches = TypedDict("_Batches", {"trigger_ms": _Figure})
_Checkpoint = TypedDict("_Checkpoint", {"share_of_batch": _Figure})
_Recovery = TypedDict(
    "_Recovery",
    {
        "detect": _Figure,
        "restart": _Figure,
        "first_visible": _Figure,
        "caught_up": _Figure,
        "longest_gap": _Figure,
        "replayed_rows": NotRequired[Count | None],  # older reports tell of none
    },
)
_Fault = TypedDict(
    "_Fault",
    {
        "point": str | None,
        "batch": int | None,
        "hit": bool,
        "fault": Annotated[str, AfterValidator(_fault)],
        "lost": Count,
        "duplicated": Count,
        "noted": NotRequired[list[str]],
        "untested": NotRequired[list[str]],  # older reports: what found nothing to act on is in `noted`
        # Older reports tell of the recovery from a run's first fault only.
        "t_us": NotRequired[int | None],
        "recovery": NotRequired[_Recovery | None],
    },
)
_Differ = TypedDict("_Differ", {"first": int, "second": int})
_Auditors = TypedDict("_Auditors", {"agree": bool, "compared": Count, "differ": dict[str, _Differ], "trouble": str})


class Report(TypedDict):
    """One report."""

    schema: int
    run: str
    cell: _Cell
    verdict: Annotated[str, one_of((KEPT, BROKEN, UNKNOWN, VACUOUS))]
    broken_by: NotRequired[list[Annotated[str, one_of(CATALOGUE)]]]  # older reports: the codes are in the reasons
    reasons: list[str]
    auditors: NotRequired[_Auditors]  # older reports were made by one
    anomalies: dict[Annotated[str, one_of(CATALOGUE)], Count]
    rules: NotRequired[dict[Annotated[str, one_of(CATALOGUE)], str]]  # older reports tell neither rules nor kinds
    splits: NotRequired[dict[Annotated[str, one_of(CATALOGUE)], dict[str, int]]]
    sessions: _Sessions
    rows: _Rows
    throughput: _Throughput
    latency_ms: _Latency
    batches: _Batches
    checkpoint: _Checkpoint
    sink_ms: dict[str, _Figure]
    cpu_s_per_million_events: _Figure
    recovery: _Recovery
    faults: list[Annotated[_Fault, AfterValidator(_timed)]]
    uncharged: NotRequired[dict[str, Count]]  # older reports tell of none
    config: NotRequired[dict[str, Any]]
    seed: int
    probe: NotRequired[bool]  # a rate that was only tried
    series: NotRequired[str]  # older reports, and runs by themselves, tell of none
    interrupted: NotRequired[bool]
    reproduce: Annotated[str, AfterValidator(_command)]
