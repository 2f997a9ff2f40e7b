"""The schemas of a run folder's files: the fields that the audit and the report rely on.

Promise: one type per file, and nothing but types; what a run writes fits them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Discriminator, Field, GetPydanticSchema, Tag
from typing_extensions import TypedDict  # pydantic takes that of `typing` only from Python 3.12

from oncebench.delivery.contract import GUARANTEES
from oncebench.delivery.failpoints import parse_fault
from oncebench.record import events
from oncebench.record.validation import Count, Whole, one_of

Sink = Annotated[str, Field(pattern="^[a-z0-9-]+$")]  # any: a stored run may be of a sink that is gone
Guarantee = Annotated[str, one_of(GUARANTEES)]
_Fault = Annotated[str, AfterValidator(parse_fault)]
_NO_RATE = {"custom_error_type": "rate", "custom_error_message": 'Input should be a number or "max"'}
Rate = Annotated[float | Literal["max"], GetPydanticSchema(lambda kind, make: {**make(kind), **_NO_RATE})]
_Partition = Annotated[str, Field(pattern="^[0-9]{1,10}$")]
_Offsets = dict[_Partition, Count]
_Several = Annotated[int, Field(ge=1, le=256)]  # processes of one kind; each has files of its own
_Seconds = Annotated[float, Field(allow_inf_nan=False)]


class StoredCell(TypedDict, closed=True):
    """Every field of a `scenario.Cell`: what was run."""

    sink: Sink
    guarantee: Guarantee
    variant: str
    faults: list[_Fault]
    random_kills: NotRequired[Count]
    outage_s: NotRequired[_Seconds]
    workload: NotRequired[str]  # earlier versions had sessions only
    records: NotRequired[str]
    records_key: NotRequired[str]
    passes: NotRequired[Count]
    rate: NotRequired[Rate]
    sessions: NotRequired[Count]
    open_sessions: NotRequired[Count]
    record_bytes: NotRequired[Count]
    shape: NotRequired[str]
    skew: NotRequired[_Seconds]
    seed: NotRequired[int]
    trigger_ms: NotRequired[Count]
    partitions: NotRequired[Count]
    max_events_per_batch: NotRequired[Count | None]
    transaction_timeout_ms: NotRequired[Count]
    on_lost: NotRequired[str]
    checkpoint_writing: NotRequired[str]
    state_store: NotRequired[str]
    master: NotRequired[str]
    checkpoint: NotRequired[str]
    spark_conf: NotRequired[list[str]]
    warmup_s: NotRequired[_Seconds]
    brokers: NotRequired[Count]
    workers: NotRequired[Count]
    replication: NotRequired[Count | None]
    generators: NotRequired[_Several]
    observers: NotRequired[_Several]
    black_box: NotRequired[str]


class _Traits(TypedDict, closed=True):
    """See `traits.SinkTraits`."""

    ordered: bool
    self_cleaning: bool
    batch_atomic: bool
    has_write_timestamps: bool
    services: list[str]


class CellFile(TypedDict):
    run: str
    cell: StoredCell
    sink_traits: NotRequired[_Traits]  # earlier versions wrote none
    session_timeout_ms: NotRequired[Count]  # earlier versions did not write it; it was 10 minutes


class Plan(TypedDict):
    seed: int
    sessions: Count
    events: Count
    started_us: Whole
    topic: NotRequired[str]
    rate: NotRequired[Rate]
    shape: NotRequired[str]


_Use = TypedDict(
    "_Use",
    {"cpu_s": float, "peak_rss_bytes": Count, "written_bytes": Count, "read_bytes": NotRequired[Count]},
    closed=True,
)


_Written = TypedDict("_Written", {"bytes": Count, "files": Count})


class Engine(TypedDict):
    """See `lab.engine.Engine`; `unused`, `program` and `defaults` are its `Program`."""

    name: str
    settings: dict[str, Any]
    unused: list[str]
    program: list[str]
    defaults: NotRequired[dict[str, Any]]  # older runs: the options of `program` have them


class Facts(TypedDict):
    run: str
    topics: dict[str, str]
    kafka: dict[str, Any]
    theirs: NotRequired[dict[str, str]]  # the addresses of the user's servers, by variable
    durability: NotRequired[dict[str, dict[str, str]]]  # older runs did not read it
    java: str | None
    interrupted: bool
    uses: dict[str, _Use]
    checkpoint_written: NotRequired[_Written | None]  # older runs did not count it; null: not counted
    measured_from_us: NotRequired[Count]  # older runs: when the load began
    measured_until_us: NotRequired[Count]  # 0, and older runs: when the load was drained
    clock_moved_us: NotRequired[Whole]  # older runs did not watch the clock
    digests: NotRequired[bool]  # whether the run wrote `digests.json`; older runs do not show it
    environment: NotRequired[dict[str, Any]]  # older runs: use the machine that audits them
    engine: NotRequired[Engine]  # older runs: Spark


_End = TypedDict("_End", {"lso": Count, "hw": Count, "low": NotRequired[Count]})


class _Open(TypedDict):
    partition: Count
    offset: Count
    producer: Whole
    transactional_id: str | None
    state: str | None
    here: bool
    started_ms: int
    timeout_ms: Count
    asked_ms: Whole


class Ends(TypedDict):
    output: dict[_Partition, _End]
    input: dict[_Partition, _End]
    leftovers: list[str]
    final_complete: bool
    output_is_log: NotRequired[bool]
    batches_at_once: NotRequired[bool]  # whether a batch becomes visible in one step
    stamped: NotRequired[bool]  # whether the sink's rows carry their write time
    log_complete: NotRequired[bool]  # only where the sink has a log that names its writers
    open_transactions: NotRequired[list[_Open]]  # as `log_complete`


class _Durations(TypedDict):
    triggerExecution: float
    walCommit: NotRequired[float]
    commitOffsets: NotRequired[float]
    addBatch: NotRequired[float]
    queryPlanning: NotRequired[float]


_State = TypedDict("_State", {"commitTimeMs": float, "numShufflePartitions": NotRequired[Count]})
# The kinds of progress lines. `pipeline.progress` writes them.
STARTED = "started"  # an attempt begins, with the batch that it found open
RUNNING = "running"  # the query of an attempt runs
SINK = "sink"  # the steps of a batch in the sink, with their times
BATCH, POSITION = "batch", "position"
READ = (BATCH, POSITION)  # the `end_offsets` are the committed position of the pipeline
GAP = "gap"  # an operator has accepted a loss
_Line = TypedDict("_Line", {"kind": str, "t_us": Whole})


class _Batch(_Line):
    batch: Whole
    began_us: NotRequired[Whole]  # older runs do not record it
    start_offsets: _Offsets
    end_offsets: _Offsets
    input_rows: Count
    duration_ms: _Durations
    state: list[_State]


class _Position(_Line):
    """The position of an engine without batches.

    Up to `end_offsets` the input is read, and its rows are committed.
    """

    end_offsets: _Offsets
    read_us: Whole  # when the engine had read up to there; the line is written later


class _Recovered(_Line):
    """A batch line that the next start wrote, because a kill prevented the batch's own line."""

    batch: Whole
    start_offsets: _Offsets
    end_offsets: _Offsets
    input_rows: Annotated[int, Field(ge=0, le=0)]


class _Started(_Line):
    open_batch: NotRequired[Whole | None]  # older runs do not record it


class _Gap(_Line):
    """A loss that an operator has accepted."""

    text: str


class _SinkTimes(_Line):
    batch: Whole
    rows: Count
    timings_ms: dict[str, float]
    drained: NotRequired[bool]
    dropped: NotRequired[list[Whole]]


def _kind_of_progress(line: object) -> str:
    match line:
        case {"kind": "batch", "recovered": again} if again:
            return "(recovered)"
        case {"kind": "batch" | "gap" | "position" | "sink" | "started" as kind}:
            return f"({kind})"
    return "(other)"


Progress = Annotated[
    Annotated[_Batch, Tag("(batch)")]
    | Annotated[_Gap, Tag("(gap)")]
    | Annotated[_Position, Tag("(position)")]
    | Annotated[_Recovered, Tag("(recovered)")]
    | Annotated[_SinkTimes, Tag("(sink)")]
    | Annotated[_Started, Tag("(started)")]
    | Annotated[_Line, Tag("(other)")],
    Discriminator(_kind_of_progress),
]


class Hit(TypedDict):
    fault: str
    point: str
    batch: Whole
    action: str
    t_us: Whole
    rows: NotRequired[Count | None]
    partition: NotRequired[Whole | None]
    seconds: NotRequired[float]


_Event = TypedDict("_Event", {"event": str, "t_us": Whole})
_Landed = TypedDict("_Landed", {"point": str, "batch": Whole})
_RandomKill = TypedDict(
    "_RandomKill",
    {
        "event": str,
        "t_us": Whole,
        "landed": _Landed | None,
        "commit_held": NotRequired[bool],  # kills before an outage under exactly-once
        "idle": NotRequired[bool],  # older runs do not show it
    },
)


def _kind_of_event(line: object) -> str:
    match line:
        case {"event": events.RANDOM_KILL}:
            return "(random-kill)"
    return "(other)"


Timeline = Annotated[
    Annotated[_RandomKill, Tag("(random-kill)")] | Annotated[_Event, Tag("(other)")], Discriminator(_kind_of_event)
]


class _Summary(TypedDict, total=False):
    acknowledged: Count | None
    lateness_ms: dict[str, float | None] | None
    sent_share: float | None
    events_per_s: float | None
    queue_full_s: float | None  # older runs have none


Load = TypedDict("Load", {"summary": NotRequired[_Summary]})
