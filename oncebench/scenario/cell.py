"""What can be run: a cell (sink x guarantee x variant x faults x load).

Promise: a cell holds everything that its run depends on, and `reproduce` gives the one command that runs it again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, cast

from loadgen.pacing import Rate, lasts_s, parse_shape
from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.contract import GUARANTEES, SinkKind, Support
from oncebench.delivery.failpoints import parse_fault
from oncebench.delivery.protocols import (
    DROP,
    PROTOCOLS,
    REWRITE,
    choose,
    exactly_once_two_phase,
    protocol_of,
)
from oncebench.errors import ExitCode, UserError
from oncebench.faults.catalogue import complaint, not_beside, unplaced, why_not
from oncebench.sinks.registry import SINKS, suite_sinks
from pipeline.config import AS_SHIPPED, CHANGELOG, SNAPSHOTS, TUNED

RECOVERY_CHOICES = (REWRITE, DROP)
CHECKPOINT_CHOICES = (TUNED, AS_SHIPPED)
STATE_CHOICES = (CHANGELOG, SNAPSHOTS)


_FEW = 3  # faults that still fit into one line of a terminal


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        sink, delivery, variant: what is under test.
        faults: failpoint specifications in the order in which they act; empty: healthy.
        random_kills: SIGKILLs at Poisson times drawn from `seed`, beside `faults`.
        rate: events per second, or "max": the load is in the topic before the pipeline starts.
        sessions: sessions of 100 events.
        open_sessions: sessions that are in the pipeline's state before the load begins, and never end.
        record_bytes: events that are shorter are padded to so many bytes; 0: none is (they have some 110).
        shape: of the rate over time, see `loadgen.pacing`.
        seed: of the load and of random kills.
        trigger_ms: time between micro-batches; 0: as fast as possible.
        partitions: of input and output topics, and tasks per batch.
        max_events_per_batch: limit of one batch; None: everything that is there.
        transaction_timeout_ms, on_lost, checkpoint_writing, state_store, master: see `pipeline.config`.
        warmup_s: what is measured begins so long after the load's start: latencies of sessions that ended earlier are
            left out, batches that began earlier, and what processes used until then (a load that is over sooner pays
            for all of it).
    """

    sink: str
    guarantee: str
    variant: str
    faults: tuple[str, ...] = ()
    random_kills: int = 0
    rate: float | str = 2000.0
    sessions: int = 200
    open_sessions: int = 0
    record_bytes: int = 0
    shape: str = "constant"
    seed: int = 1
    trigger_ms: int = 0
    partitions: int = 2
    max_events_per_batch: int | None = None
    transaction_timeout_ms: int = 60_000
    on_lost: str = REWRITE
    checkpoint_writing: str = TUNED
    state_store: str = CHANGELOG
    master: str = "local[2]"
    warmup_s: float = 3.0

    @property
    def faulted(self) -> bool:
        """Whether anything is done to the pipeline."""
        return bool(self.faults or self.random_kills)

    @property
    def load_s(self) -> float:
        """How long the load takes by its plan, in seconds; 0 where all of it is due at once."""
        events = self.sessions * EVENTS_PER_SESSION
        return lasts_s(parse_shape(self.shape, cast(Rate, self.rate), events), events)

    @property
    def title(self) -> str:
        """For people: `kafka exactly-once two-phase, after-commit:kill`."""
        what = ", ".join((*self.faults, *([f"{self.random_kills} random kills"] if self.random_kills else [])))
        return f"{self.sink} {self.guarantee} {self.variant}, {what or 'healthy'}{self._state}"

    @property
    def brief(self) -> str:
        """The title, with many faults only counted: for lines that come again and again."""
        if len(self.faults) <= _FEW:
            return self.title
        others = replace(self, faults=(), open_sessions=0).title.removesuffix(", healthy")
        return f"{others}, {len(self.faults)} faults{self._state}"

    @property
    def _state(self) -> str:
        return f", {self.open_sessions} open sessions" if self.open_sessions else ""

    def reproduce(self) -> str:
        """The command that runs this cell again; options at their defaults are left out."""
        default = Cell(self.sink, self.guarantee, self.variant)
        words = ["oncebench", "run", "--sink", self.sink, "--guarantee", self.guarantee, "--variant", self.variant]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("sink", "guarantee", "variant") or value == getattr(default, field.name):
                continue
            if field.name == "faults":
                words += [word for fault in self.faults for word in ("--fault", fault)]
            else:
                text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else f"{value}"
                words += [_OPTIONS.get(field.name, "--" + field.name.replace("_", "-")), text]
        words += [] if "--sessions" in words else ["--sessions", str(self.sessions)]
        return shlex.join(words)

    def as_json(self) -> dict[str, Any]:
        """As it stands in `cell.json` and in a report."""
        return asdict(self) | {"faults": list(self.faults)}


# Options whose name differs from the field's.
_OPTIONS = {"trigger_ms": "--trigger", "transaction_timeout_ms": "--transaction-timeout", "warmup_s": "--warmup"}


def prepares(cell: Cell) -> bool:
    """Whether a cell's protocol decides about what its tasks have prepared, so that it can be lost in between."""
    kind = SINKS[cell.sink]
    return protocol_of(kind, choose(kind, cell.guarantee, cell.variant)) is exactly_once_two_phase


def declared(sink: str, guarantee: str, variant: str) -> Support | None:
    """The support of that name, as a report has it; None: the sink does not declare it (any more)."""
    supports = SINKS[sink].supports if sink in SINKS else ()
    found = (each for each in supports if (each.guarantee, each.variant) == (guarantee, variant))
    return next(found, None)


def counts_rows(variant: str) -> bool:
    """Whether the pipeline counts the rows of each batch. Spark's own sinks return no count."""
    return variant != "native"


def support_of(sink: str, guarantee: str, variant: str | None) -> Support:
    """The support that a sink declares.

    Raises:
        UserError: unknown sink or guarantee, or a variant that the sink does not support (exit code 2).
    """
    require_sinks([sink])
    if guarantee not in GUARANTEES:
        raise UserError(
            f"unknown delivery guarantee {guarantee!r}; they are: {', '.join(GUARANTEES)}", exit_code=ExitCode.USAGE
        )
    supports = SINKS[sink].supports
    for support in supports:
        if support.guarantee == guarantee and (support.variant == variant if variant else support.default):
            return support
    reasons = {(d, v): why for d, v, why in lacking(SINKS[sink])}
    why = reasons.get((guarantee, "")) or (reasons.get((guarantee, variant)) if variant else None)
    reason = f" ({why})" if why else ""
    variants = ", ".join(s.variant for s in supports if s.guarantee == guarantee)
    if not variants:
        kept = ", ".join(each for each in GUARANTEES if any(s.guarantee == each for s in supports))
        raise UserError(
            f"sink {sink} does not support {guarantee}{reason}; it supports: {kept}", exit_code=ExitCode.USAGE
        )
    if variant is None:
        raise UserError(
            f"sink {sink} has no default for {guarantee}; give --variant: {variants}", exit_code=ExitCode.USAGE
        )
    raise UserError(
        f"sink {sink} has no variant {variant!r} of {guarantee}{reason}; it has: {variants}", exit_code=ExitCode.USAGE
    )


def lacking(kind: SinkKind) -> Iterator[tuple[str, str, str]]:
    """(guarantee, variant, why) of what a kind of sink says that it lacks; variant "": all of the guarantee."""
    homes = {variant: guarantee for guarantee, variant in PROTOCOLS}
    for what, why in kind.lacks.items():
        guarantee, _, variant = what.partition("/")
        yield (guarantee, variant, why) if guarantee in GUARANTEES else (homes[guarantee], guarantee, why)


def order_of(guarantee: str, variant: str) -> tuple[int, str]:
    """Where a guarantee and its variant stand in lists and tables: by strength, then by name."""
    return GUARANTEES.index(guarantee), variant


def ordered(supports: Iterable[Support]) -> list[Support]:
    """The supports of a sink in the order of lists and tables."""
    return sorted(supports, key=lambda support: order_of(support.guarantee, support.variant))


def require_sinks(sinks: Iterable[str]) -> None:
    """Looks whether there are such sinks.

    Raises:
        UserError: one of them is unknown (exit code 2).
    """
    for sink in sinks:
        if sink not in SINKS:
            raise UserError(_unknown_sink(sink), exit_code=ExitCode.USAGE)


def _unknown_sink(sink: str) -> str:
    broken = [name for name, kind in SINKS.items() if any(support.expected_anomaly for support in kind.supports)]
    sound = [name for name in SINKS if name not in broken]
    near = get_close_matches(sink, [*sound, *broken], n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown sink {sink!r}{meant}; the sinks are: {', '.join(sound)}; broken on purpose: {', '.join(broken)}"


def checked_fault(text: str) -> str:
    """A fault specification in its full form.

    Raises:
        UserError: it is none (exit code 2).
    """
    try:
        fault = parse_fault(text)
    except ValueError as error:
        raise UserError(str(error), exit_code=ExitCode.USAGE) from error
    if (wrong := complaint(fault)) is not None:
        raise UserError(wrong, exit_code=ExitCode.USAGE)
    return str(fault)


def require_possible(cells: Iterable[Cell], ours: frozenset[str] | None = None) -> None:
    """Looks whether the faults of each cell can be done to it.

    Args:
        ours: the servers that the suite will have started; None: all that are needed.

    Raises:
        UserError: one of them can't be, and why (exit code 2).
    """
    for cell in cells:
        kind = SINKS[cell.sink]
        support = choose(kind, cell.guarantee, cell.variant)
        faults = [parse_fault(text) for text in cell.faults]
        for text, fault in zip(cell.faults, faults, strict=True):
            reason = (
                why_not(fault, suite_sinks()[cell.sink], support, ours)
                or unplaced(fault, cell.master)
                or not_beside(fault, faults)
            )
            if reason is not None:
                raise UserError(f"fault {text}: {reason}", exit_code=ExitCode.USAGE)


def installed() -> tuple[str, ...]:
    """The sinks that miss nothing here: those that are run where the user names none."""
    return tuple(name for name, kind in SINKS.items() if not kind.missing)


def all_supports() -> Iterator[tuple[str, Support]]:
    """Every (sink, support) that is meant to keep its promise."""
    for sink, kind in SINKS.items():
        for support in ordered(kind.supports):
            if support.expected_anomaly is None:
                yield sink, support


def expected_codes(report: Mapping[str, Any]) -> set[str]:
    """The anomalies that a cell which is broken on purpose must show; none for all others."""
    cell = report["cell"]
    support = declared(cell["sink"], cell["guarantee"], cell["variant"])
    return set() if support is None or support.expected_anomaly is None else {support.expected_anomaly}
