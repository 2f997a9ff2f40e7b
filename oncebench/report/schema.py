"""The schema of a stored report: the fields that tables, comparisons and the summary use.

Promise: a table of types and nothing else. Every report that `make_report` makes fits, and every report that fits can
be displayed. Fields that older reports lack are `NotRequired`.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator
from typing_extensions import TypedDict  # pydantic accepts the TypedDict of `typing` only from Python 3.12 on

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.verdict import Verdict
from oncebench.delivery.failpoints import parse_fault
from oncebench.faults.catalogue import FAULTS
from oncebench.record.schema import Guarantee, Rate, Sink
from oncebench.record.validation import Count, one_of
from oncebench.scenario.matrix.families import RANDOM_KILL


def _known_fault(text: str) -> str:
    if text != RANDOM_KILL and (action := parse_fault(text).action) not in FAULTS:
        raise ValueError(f"there is no fault {action!r}")
    return text


def _with_time(fault: Fault) -> Fault:
    if fault["hit"] and fault.get("t_us", 0) is None:
        raise ValueError("a fault that was hit has a time t_us")
    return fault


def _shell_command(text: str) -> str:
    shlex.split(text)  # ValueError: a quotation does not end
    return text


_Code = Annotated[str, one_of(CATALOGUE)]
_Figure = float | None
ReportCell = TypedDict(
    "ReportCell",
    {
        "sink": Sink,
        "guarantee": Guarantee,
        "variant": str,
        "faults": list[str],
        "random_kills": Count,
        "open_sessions": NotRequired[Count],
    },
)
Sessions = TypedDict(
    "Sessions",
    {
        "planned": NotRequired[Count],
        "acknowledged": Count,  # sessions of the load
        "finished": Count,  # sessions of the load and of the priming
        "primed": NotRequired[Count],
    },
)
Rows = TypedDict("Rows", {"expected": Count, "visible": Count, "lost": Count, "duplicated": Count})
_Throughput = TypedDict("_Throughput", {"events_per_s": _Figure})
_Latency = TypedDict(
    "_Latency",
    {
        "n": Count,
        "unseen": NotRequired[Count],  # older reports leave such rows out
        "p50": _Figure,
        "p95": _Figure,
        "p99": _Figure,
        "p999": _Figure,
        "max": _Figure,
    },
)
_Batches = TypedDict("_Batches", {"trigger_ms": _Figure, "n": NotRequired[Count | None]})
_Written = TypedDict("_Written", {"bytes": _Figure, "files": _Figure})
_Checkpoint = TypedDict(
    "_Checkpoint",
    {
        "share_of_batch": _Figure,
        "per_million_events": NotRequired[_Written | None],
        "per_batch": NotRequired[_Written | None],
    },
)
_Price = TypedDict("_Price", {"written_bytes": NotRequired[_Figure]})
_Use = TypedDict("_Use", {"peak_rss_bytes": float})
_Gap = TypedDict("_Gap", {"p50": NotRequired[_Figure]})
_Events = TypedDict("_Events", {"in_topic": NotRequired[Count], "late": NotRequired[Count]})
_Steadiness = TypedDict(
    "_Steadiness", {"lag_slope": _Figure, "lag_slope_error": NotRequired[_Figure], "latency_rise": _Figure}
)
_Death = TypedDict(  # see `audit.exits.UnintendedExit`; older reports also have its text, `told`
    "_Death", {"exit_code": int | None, "signal": int | None, "why": str, "after_start_s": _Figure}
)
_Deaths = TypedDict("_Deaths", {"unasked": Count, "each_unasked": list[_Death]})
_Lateness = TypedDict("_Lateness", {"p99": NotRequired[_Figure], "max": NotRequired[_Figure]})
_OneGenerator = TypedDict(
    "_OneGenerator", {"lateness_ms": NotRequired[_Lateness | None], "queue_full_s": NotRequired[_Figure]}
)
_Generator = TypedDict(
    "_Generator",
    {
        "lateness_ms": NotRequired[_Lateness | None],
        "queue_full_s": NotRequired[_Figure],  # older reports have none
        # Of a run with several generators.
        "processes": NotRequired[list[_OneGenerator]],
        "slowest": NotRequired[Count | None],
    },
)
_Config = TypedDict(
    "_Config",
    {
        "faults": NotRequired[list[str]],
        "trigger_ms": NotRequired[Count],
        "rate": NotRequired[Rate],
        "warmup_s": NotRequired[float],
        "generators": NotRequired[Count],
        "observers": NotRequired[Count],
        "workload": NotRequired[str],
        "workers": NotRequired[Count],
    },
)
RecoveryMarks = TypedDict(
    "RecoveryMarks",
    {
        "detect": _Figure,
        "restart": _Figure,
        "first_visible": _Figure,
        "caught_up": _Figure,
        "longest_gap": _Figure,
        "replayed_rows": NotRequired[Count | None],
    },
)
Fault = TypedDict(
    "Fault",
    {
        "point": str | None,
        "batch": int | None,
        "hit": bool,
        "fault": Annotated[str, AfterValidator(_known_fault)],
        "lost": Count | None,  # None: the engine has no batches, by which rows are charged to faults
        "duplicated": Count | None,
        "noted": NotRequired[list[str]],
        "untested": NotRequired[list[str]],  # older reports note in `noted` that a fault found nothing to act on
        # Older reports have the recovery from a run's first fault only.
        "t_us": NotRequired[int | None],
        "recovery": NotRequired[RecoveryMarks | None],
    },
)
_Difference = TypedDict("_Difference", {"first": int, "second": int})
Limit = TypedDict("Limit", {"limit": str, "part": str, "share": _Figure, "cores_busy": _Figure})
_Rows = dict[_Code, Count]
_OpenQuestions = TypedDict("_OpenQuestions", {"weak": list[str], "undecided": list[str], "not_exercised": list[str]})
_Excuses = TypedDict("_Excuses", {"missing": _Rows, "unknown": _Rows})
Auditors = TypedDict("Auditors", {"agree": bool, "compared": Count, "differ": dict[str, _Difference], "trouble": str})


class Report(TypedDict):
    """The report of one run."""

    schema: int
    run: str
    cell: ReportCell
    verdict: Annotated[str, one_of(Verdict)]
    broken_by: NotRequired[list[_Code]]  # older reports have the codes in the reasons
    reasons: list[str]
    auditors: NotRequired[Auditors]  # older reports were made by one auditor
    # Only in runs of a user's own sink: why a guarantee has no answer, and the rows that a failure may explain.
    open_questions: NotRequired[_OpenQuestions]
    excuses: NotRequired[dict[Guarantee, _Excuses]]
    anomalies: dict[_Code, Count]
    rules: NotRequired[dict[_Code, str]]
    splits: NotRequired[dict[_Code, dict[str, int]]]
    examples: NotRequired[dict[_Code, list[Any]]]
    sessions: Sessions
    rows: Rows
    events: NotRequired[_Events]
    throughput: _Throughput
    latency_ms: _Latency
    visibility_gap_ms: NotRequired[_Gap | None]
    append_latency_ms: NotRequired[dict[str, Any] | None]
    latency_curve_ms: NotRequired[list[_Figure] | None]
    torn_seen_by_observer: NotRequired[Count]
    batches: _Batches
    bottleneck: NotRequired[Limit | None]  # older reports have none
    checkpoint: _Checkpoint
    sink_ms: dict[str, _Figure]
    resources: NotRequired[dict[str, _Use]]
    cpu_s_per_million_events: _Figure
    pipeline_cpu_s_per_million_events: NotRequired[_Figure]  # older reports have none
    price: NotRequired[_Price | None]
    watching_share: NotRequired[_Figure]
    timeline: NotRequired[dict[str, Any]]
    steadiness: NotRequired[_Steadiness]
    recovery: RecoveryMarks
    deaths: NotRequired[_Deaths]
    faults: list[Annotated[Fault, AfterValidator(_with_time)]]
    uncharged: NotRequired[dict[str, Count]]
    generator: NotRequired[_Generator]
    topics: NotRequired[dict[str, Any] | None]
    environment: NotRequired[dict[str, Any]]
    config: NotRequired[_Config]
    seed: int
    probe: NotRequired[bool]  # the run only tried a rate, for `oncebench sustain`
    series: NotRequired[str]  # the series that the run belongs to; runs outside a series have none
    interrupted: NotRequired[bool]
    not_finished: NotRequired[str]  # why; empty if the run finished; older reports have only the reason
    clock_moved_us: NotRequired[int | None]  # None: the run did not watch its clock; older reports have none
    reproduce: Annotated[str, AfterValidator(_shell_command)]
