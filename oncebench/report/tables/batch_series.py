"""A stored series of `oncebench batches`: one file of JSON lines.

The first line says where the series comes from: {"series", "command", "environment", "rows" or "events", "partitions"}.
Each other line is a batch, see `oncebench.report.tables.batches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic accepts the TypedDict of `typing` only from Python 3.12 on

from oncebench.delivery.contract import GUARANTEES
from oncebench.errors import ExitCode, UserError
from oncebench.record.json_lines import LineWriter, read_lines
from oncebench.record.validation import Count, RecordError, Whole, require
from oncebench.report.comparisons.paired import machine_in, servers_in

FOLDER = "batches"  # below a results folder

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]  # also of its file
_Arm = Annotated[str, Field(pattern=rf"^[a-z0-9-]+\.({'|'.join(GUARANTEES)})\.[a-z0-9-]+$")]
_Size = Annotated[int, Field(gt=0, lt=2**63)]
_Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Cpu = Annotated[float, Field(allow_inf_nan=False)]


class _Machine(TypedDict):
    cpu: NotRequired[str | None]
    cores: NotRequired[Count | None]
    commit: str | None
    kafka: NotRequired[dict[str, Any]]
    theirs: NotRequired[dict[str, Any]]


class _About(TypedDict):
    series: _Name
    command: str
    environment: _Machine
    partitions: _Size
    rows: NotRequired[_Size]
    events: NotRequired[_Size]


class _Batch(TypedDict):
    round: Whole
    arm: _Arm
    ms: _Time


class _WholeBatch(_Batch):
    events: _Size
    cpu_ms: _Cpu


@dataclass(frozen=True)
class BatchSeries:
    """Where a series comes from, and its batches.

    Attributes:
        about: the first line of its file.
        lines: the others.
        merged: the first lines of all its files if `merged` made it of several series, else empty.
    """

    about: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    merged: tuple[Mapping[str, Any], ...] = ()

    @property
    def abouts(self) -> tuple[Mapping[str, Any], ...]:
        """The first line of each of its files."""
        return self.merged or (self.about,)

    @property
    def is_whole(self) -> bool:
        """Whether the batches went through the whole pipeline."""
        return "events" in self.about

    @property
    def place(self) -> str:
        """The machine, and the user's servers if there are any."""
        return ", ".join((self.machine or "unknown machine", *self.servers))

    @property
    def machine(self) -> str | None:
        """Processor and cores, if they are known."""
        return machine_in(self.about["environment"])

    @property
    def servers(self) -> list[str]:
        """The user's servers; empty if all were the suite's own."""
        return [f"{name} {text}" for name, text in servers_in(self.about["environment"]).items()]

    def write(self, folder: Path) -> Path:
        """Writes the series below a results folder; returns the new file."""
        path = folder / FOLDER / f"{self.about['series']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with LineWriter(path) as file:
            for line in (self.about, *self.lines):
                file.append(line)
        return path


def read_series(path: Path) -> BatchSeries:
    """Reads a stored series.

    Raises:
        UserError: the file is no such series, or is damaged (exit code 2).
    """
    try:
        about, *lines = read_lines(path).items
    except (RecordError, ValueError):
        about, lines = {}, []
    if "series" not in about or "cell" in about or not lines:  # a report of a run has a cell
        raise UserError(
            f"{path} is no series of `oncebench batches`. Give a file of results/local/{FOLDER}/",
            exit_code=ExitCode.USAGE,
        )
    try:
        _require_sound(about, lines, path)
    except RecordError as error:
        raise UserError(str(error), exit_code=ExitCode.USAGE) from None
    return BatchSeries(about, lines)


def _require_sound(about: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Raises `RecordError` if a line lacks what a table needs, or two lines have the same batch."""
    require(about, _About, path)
    if ("rows" in about) == ("events" in about):
        raise RecordError(f"{path} must have either rows or events in its first line. Take it from a sound copy")
    found: set[tuple[str, int]] = set()
    for line in lines:
        require(line, _WholeBatch if "events" in about else _Batch, path)
        if "events" in about and line["events"] != about["events"]:
            raise RecordError(
                f"{path} has a batch of {line['events']:,} events in a series of {about['events']:,}. Its times cannot "
                "be compared: take the file from a sound copy"
            )
        batch = line["arm"], line["round"]
        if batch in found:
            raise RecordError(
                f"{path} has round {line['round']} of {line['arm']} twice. Several files were joined, or it is "
                "damaged: take it from a sound copy"
            )
        found.add(batch)


def merged(all_series: Sequence[BatchSeries]) -> list[BatchSeries]:
    """Merges the series with the same size of batch, machine, servers and version.

    More rounds give narrower intervals. A round keeps its batches, so each ratio stays within its round. A copy of a
    series does not count again.
    """
    found: dict[tuple[str, ...], list[BatchSeries]] = {}
    for series in {str(each.about["series"]): each for each in all_series}.values():
        size = (str(series.about.get(name)) for name in ("events", "rows", "partitions"))
        found.setdefault((*size, series.place, str(series.about["environment"]["commit"])), []).append(series)
    return [_merged(same) for same in found.values()]


def _merged(same: Sequence[BatchSeries]) -> BatchSeries:
    if len(same) == 1:
        return same[0]
    ordered = sorted(same, key=lambda series: str(series.about["series"]))
    lines: list[Mapping[str, Any]] = []
    for series in ordered:
        first = 1 + max((int(line["round"]) for line in lines), default=-1)
        lines += [{**line, "round": first + line["round"]} for line in series.lines]
    return BatchSeries(ordered[-1].about, lines, tuple(series.about for series in ordered))


def series_in(folder: Path) -> list[BatchSeries]:
    """The series of a results folder, by the name of the file."""
    return [read_series(path) for path in sorted((folder / FOLDER).glob("*.jsonl"))]
