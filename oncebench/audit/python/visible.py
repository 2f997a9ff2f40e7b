"""Anomalies of visible rows: LOSS, GAP-ROWS, PEND, DUP, DIV, PHAN, TORN, CORR, REORD, SCAT.

It also adds the input to the examples of INCO.

Promise: counts follow the rules in `anomalies.CATALOGUE` exactly. They come from ids with their multiplicities, never
from totals, so one loss and one duplicate are two findings. All of it is arithmetic on columns.

What can go wrong: a row that cannot be read has no id. It is CORR, and the row that it should have been is LOSS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.history.copies import digest
from oncebench.audit.python.model import Expected
from oncebench.audit.python.outputs import Outputs, read_outputs
from oncebench.audit.python.reads import Reads
from oncebench.audit.python.records import (
    Bools,
    Ints,
    Numbers,
    by_size,
    contents,
    keep,
    position_of,
    sizes,
    unpack,
)

TEXT_BYTES = 200  # length of a corrupt value in an example


@dataclass(frozen=True)
class Visible:
    """Expected against visible rows; `multiplicity` [sessions, 20] is m(x) of expected ids.

    `covered`: [sessions] All events are committed, and no accepted loss explains a missing row.
    """

    multiplicity: Ints
    covered: Bools
    anomalies: dict[str, Anomaly]


@dataclass(frozen=True)
class Rows:
    """The visible rows with their positions.

    Attributes:
        values: the values of `records`.
        place: where the value of each row is in `values`.
        expected_row: session * 20 + j among the expected rows, or -1.
    """

    partition: Ints
    offset: Ints
    values: pa.ChunkedArray
    place: Ints
    outputs: Outputs
    expected_row: Ints

    @staticmethod
    def of(reads: Reads, expected: Expected) -> Rows:
        """Reads the values of both reads."""
        outputs = read_outputs(reads.records, reads.rows, reads.release, with_record=expected.with_record)
        return Rows(reads.partition, reads.offset, reads.records["value"], reads.rows, outputs,
                    expected_row_of(expected, outputs))  # fmt: skip

    @property
    def position(self) -> Ints:
        """The packed partition and offset of each row."""
        return position_of(self.partition, self.offset)

    def head(self, rows: int) -> Rows:
        """Returns the first `rows` rows."""
        first = slice(rows)
        return Rows(
            self.partition[first],
            self.offset[first],
            self.values,
            self.place[first],
            self.outputs.head(rows),
            self.expected_row[first],
        )


def expected_row_of(expected: Expected, outputs: Outputs) -> Ints:
    """Returns the place (session * 20 + j) of each record among the expected rows, or -1."""
    number = {key: at for at, key in enumerate(expected.session_keys)}
    session_of = np.array([*(number.get(key, -1) for key in outputs.session_keys), -1], dtype=np.int64)
    session = session_of[outputs.session]
    inside = (session >= 0) & (outputs.j >= 0) & (outputs.j < expected.rows)
    return np.where(inside, session * expected.rows + outputs.j, -1)


def judge_rows(expected: Expected, rows: Rows, covered: Bools, accepted: Bools, *, is_log: bool) -> Visible:
    """Judges the visible rows.

    Args:
        covered: [sessions] The pipeline has committed all events of the session.
        accepted: [sessions] An operator has accepted that rows of the session's batch are missing.
        is_log: whether partitions are those of a log, and not files or tables.
    """
    sessions, width = len(expected.session_keys), expected.rows
    named = rows.expected_row[rows.expected_row >= 0]
    multiplicity = np.bincount(named, minlength=sessions * width).reshape(sessions, width)
    explain = Explainer(expected, rows)
    missing = multiplicity == 0
    visible = width - missing.sum(axis=1)
    pending = missing & ~covered[:, None]
    gap = missing & (covered & accepted)[:, None]
    covered = covered & ~accepted
    lost = missing & covered[:, None]
    whole = lost & (visible == 0)[:, None]
    torn = (visible > 0) & (visible < width) & covered
    return Visible(
        multiplicity,
        covered,
        {
            "LOSS": Anomaly(
                int(lost.sum()),
                explain.expected_rows(np.flatnonzero(lost)),
                {"whole-sessions": int(whole.sum()), "torn-sessions": int((lost & ~whole).sum())},
            ),
            "GAP-ROWS": Anomaly(int(gap.sum()), explain.expected_rows(np.flatnonzero(gap))),
            "PEND": Anomaly(int(pending.sum()), explain.expected_rows(np.flatnonzero(pending))),
            "TORN": Anomaly(int(torn.sum()), explain.sessions(np.flatnonzero(torn), missing)),
            **_repeated(rows, explain),
            "PHAN": _phantoms(expected, rows, explain),
            "CORR": _corrupt(expected, rows, explain),
            "REORD": _reordered(expected, rows),
            "SCAT": _scattered(expected, rows) if is_log else Anomaly(),
        },
    )


class Explainer:
    """Makes at most EXAMPLES examples, each with the input positions of the events behind it."""

    def __init__(self, expected: Expected, rows: Rows) -> None:
        self.expected = expected
        self.rows = rows

    def input_of(self, wanted: list[tuple[int, int]]) -> dict[tuple[int, int], list[list[int]]]:
        """Returns [partition, offset] of the events of each (key, j); key indexes `Expected.names`."""
        events, width = self.expected.events, self.expected.rows
        row = self.expected.row_of_events()
        found: dict[tuple[int, int], list[list[int]]] = {pair: [] for pair in wanted}
        inside = [key * width + j for key, j in wanted if key >= 0 and 0 <= j < width]
        for at in np.flatnonzero(np.isin(row, inside)).tolist() if inside else ():
            pair = divmod(int(row[at]), width)
            found[pair].append(list(unpack(int(events.position[at]))))
        return found

    def expected_rows(self, places: Ints, most: int = EXAMPLES) -> tuple[dict[str, Any], ...]:
        """Makes examples for places (session * 20 + j) among the expected rows."""
        pairs = [divmod(place, self.expected.rows) for place in places[:most].tolist()]
        inputs = self.input_of([(int(self.expected.key[session]), j) for session, j in pairs])
        return tuple(
            {
                "id": f"{self.expected.session_keys[session]}:{j}",
                "input": inputs[int(self.expected.key[session]), j],
                "last_event": self.last_event(session),
            }
            for session, j in pairs
        )

    def last_event(self, session: int) -> list[int]:
        """Returns [partition, offset] of the event that finished the session."""
        return [int(self.expected.last_partition[session]), int(self.expected.last_offset[session])]

    def sessions(self, sessions: Ints, missing: Bools) -> tuple[dict[str, Any], ...]:
        """Makes examples for torn sessions."""
        return tuple(
            {
                "session_key": self.expected.session_keys[session],
                "missing": np.flatnonzero(missing[session]).tolist(),
                "input": [self.last_event(session)],
            }
            for session in sessions[:EXAMPLES].tolist()
        )

    def ids(self, ids: Ints) -> tuple[dict[str, Any], ...]:
        """Makes examples for ids of `Outputs`, expected or not, with all their positions."""
        outputs = self.rows.outputs
        first = [int(np.flatnonzero(outputs.id == number)[0]) for number in ids[:EXAMPLES].tolist()]
        names = [(outputs.session_keys[outputs.session[at]], int(outputs.j[at])) for at in first]
        known = {name for name, _ in names}
        key_of = {key: at for at, key in enumerate(self.expected.names) if key in known}
        inputs = self.input_of([(key_of.get(name, -1), j) for name, j in names])
        return tuple(
            {
                "id": f"{name}:{j}",
                "rows": [self.position(at) for at in np.flatnonzero(outputs.id == number)[:EXAMPLES].tolist()],
                "input": inputs[key_of.get(name, -1), j],
            }
            for number, (name, j) in zip(ids[:EXAMPLES].tolist(), names, strict=True)
        )

    def positions(self, found: Ints) -> list[dict[str, Any]]:
        """Makes examples for visible rows; a row with an expected id comes with its input."""
        chosen = found[:EXAMPLES].tolist()
        places = self.rows.expected_row[chosen]
        behind = iter(self.expected_rows(places[places >= 0]))
        return [
            {"row": self.position(at), **(next(behind) if place >= 0 else {})}
            for at, place in zip(chosen, places.tolist(), strict=True)
        ]

    def position(self, at: int) -> list[int]:
        """Returns [partition, offset] of a visible row."""
        return [int(self.rows.partition[at]), int(self.rows.offset[at])]


def explain_inconsistent(reads: Reads, expected: Expected) -> Anomaly:
    """INCO with the input behind each example.

    The input is that of the first expected row at the position. If the reads got two expected rows there, `also` has
    the second.
    """
    if not reads.inconsistent.count:
        return reads.inconsistent
    disputed = reads.disputed
    partition, offset = (disputed[name].to_numpy().astype(np.int64) for name in ("partition", "offset"))
    place = np.arange(disputed.num_rows)
    outputs = read_outputs(disputed, place, keep)  # which rows they are; whether they are right does not matter
    rows = Rows(partition, offset, disputed["value"], place, outputs, expected_row_of(expected, outputs))
    explain = Explainer(expected, rows)
    places = np.unique(rows.expected_row[rows.expected_row >= 0])
    described = dict(zip(places.tolist(), explain.expected_rows(places, len(places)), strict=True))
    examples = []
    for example in reads.inconsistent.examples:
        here = (partition == example["row"][0]) & (offset == example["row"][1])
        named = [described[place] for place in dict.fromkeys(rows.expected_row[here].tolist()) if place >= 0]
        also = {"also": named[1]} if len(named) > 1 else {}
        examples.append({**example, **(named[0] if named else {}), **also})
    return replace(reads.inconsistent, examples=tuple(examples))


def _repeated(rows: Rows, explain: Explainer) -> dict[str, Anomaly]:
    """DUP and DIV, over all ids, expected or not."""
    ids = rows.outputs.id
    named = ids >= 0
    counts = np.bincount(ids[named], minlength=1)
    repeated = np.flatnonzero(named & (counts[ids] > 1))
    repeated = repeated[np.argsort(ids[repeated], kind="stable")]  # copies of one id are adjacent
    id_of = ids[repeated]
    new = np.ones(len(repeated), dtype=bool)
    new[1:] = id_of[1:] != id_of[:-1]
    extra = len(repeated) - int(new.sum())
    places = np.unique(_with_partition(rows.partition[repeated], id_of, 1))
    other = len(places) - int(new.sum())
    payloads = _payloads(rows, repeated)
    first = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    divergent = np.unique(id_of[np.any(payloads != payloads[first], axis=1)])
    return {
        "DUP": Anomaly(extra, explain.ids(id_of[new]), {"same-partition": extra - other, "other-partition": other}),
        "DIV": Anomaly(len(divergent), explain.ids(divergent)),
    }


def _with_partition(partition: Ints, number: Ints, of_session: int) -> Ints:
    """Packs (partition, number) into one sortable integer; numbers are not negative.

    Args:
        of_session: how many numbers a session has; the packed numbers of sessions are as far apart.
    """
    distinct = np.unique(partition)
    width = (int(number.max(initial=0)) // of_session + 1) * of_session
    return np.searchsorted(distinct, partition) * width + number


def _payloads(rows: Rows, chosen: Ints) -> Ints:
    """Returns [n, 5] numbers, equal for equal payloads.

    Unparsed values are compared by their digests.
    """
    parsed = rows.outputs.parsed[chosen]
    payloads = np.column_stack((parsed.astype(np.int64), rows.outputs.payload[chosen]))
    unparsed, numbers = np.flatnonzero(~parsed), Numbers()
    place = rows.place[chosen[unparsed]]
    for piece in by_size(sizes(rows.values, place)):
        digests = [digest(value) for value in contents(rows.values, place[piece]).to_pylist()]
        payloads[unparsed[piece], 1] = numbers.of(pa.array(digests, pa.binary()))
    return payloads


def _phantoms(expected: Expected, rows: Rows, explain: Explainer) -> Anomaly:
    outputs = rows.outputs
    unexpected = (outputs.id >= 0) & (rows.expected_row < 0)
    ids, first = np.unique(outputs.id[unexpected], return_index=True)
    finished = set(expected.session_keys) if len(ids) else set()
    split = {"unknown-session": 0, "unfinished-session": 0, "row-number": 0}
    for session in outputs.session[unexpected][first].tolist():
        key = outputs.session_keys[session]
        kind = (
            "row-number"
            if key in finished
            else "unfinished-session"
            if key in expected.unfinished
            else "unknown-session"
        )
        split[kind] += 1
    return Anomaly(len(ids), explain.ids(ids), split)


def _corrupt(expected: Expected, rows: Rows, explain: Explainer) -> Anomaly:
    outputs, place = rows.outputs, rows.expected_row
    sound = np.zeros(len(place), dtype=bool)
    known = np.flatnonzero(place >= 0)
    wanted = (expected.total, expected.checksum, expected.ended_at)
    equal = outputs.payload[known, 0] == expected.events_of_rows(place[known])
    for column, values in enumerate(wanted, start=1):
        equal &= outputs.payload[known, column] == values.reshape(-1)[place[known]]
    sound[known] = equal
    wrong_payload = outputs.parsed & outputs.keyed & (place >= 0) & ~sound
    kinds = {
        "unreadable": ~outputs.parsed,
        "wrong-key": outputs.parsed & ~outputs.keyed,
        "wrong-payload": wrong_payload,
    }
    chosen = [(kind, at) for kind, where in kinds.items() for at in np.flatnonzero(where)[:EXAMPLES].tolist()]
    split = {kind: int(where.sum()) for kind, where in kinds.items()}
    return Anomaly(sum(split.values()), _corrupt_examples(expected, rows, explain, chosen[:EXAMPLES]), split)


def _corrupt_examples(
    expected: Expected, rows: Rows, explain: Explainer, chosen: list[tuple[str, int]]
) -> tuple[dict[str, Any], ...]:
    places = np.array([rows.expected_row[at] for _, at in chosen], dtype=np.int64)
    behind = {example["id"]: example["input"] for example in explain.expected_rows(places[places >= 0])}
    examples: list[dict[str, Any]] = []
    for (kind, at), place in zip(chosen, places.tolist(), strict=True):
        value = rows.values[int(rows.place[at])].as_py()
        text = None if value is None else value[:TEXT_BYTES].decode("utf-8", "backslashreplace")
        examples.append({"row": explain.position(at), "kind": kind, "value": text})
        if place >= 0:
            session, j = divmod(place, expected.rows)
            name = f"{expected.session_keys[session]}:{j}"
            wanted = [int(column[session, j]) for column in (expected.total, expected.checksum, expected.ended_at)]
            events = int(np.asarray(expected.events_of_rows(np.array([place]))).reshape(-1)[0])
            examples[-1] |= {"id": name, "expected": [events, *wanted], "input": behind[name]}
    return tuple(examples)


def _reordered(expected: Expected, rows: Rows) -> Anomaly:
    """REORD: sessions whose first copies in a partition do not ascend in j."""
    known, width = np.flatnonzero(rows.expected_row >= 0), expected.rows
    place, first = np.unique(
        _with_partition(rows.partition[known], rows.expected_row[known], width), return_index=True
    )  # by partition, session, j
    at = known[first]
    back = np.flatnonzero((place[1:] // width == place[:-1] // width) & (at[1:] < at[:-1])) + 1
    sessions, which = np.unique(rows.expected_row[at[back]] // width, return_index=True)
    examples = tuple(
        {
            "session_key": expected.session_keys[session],
            "row": [int(rows.partition[at[row]]), int(rows.offset[at[row]])],
            "j_after_j": [int(place[row - 1] % width), int(place[row] % width)],
            "input": [[int(expected.last_partition[session]), int(expected.last_offset[session])]],
        }
        for session, row in zip(sessions[:EXAMPLES].tolist(), back[which[:EXAMPLES]].tolist(), strict=True)
    )
    return Anomaly(len(sessions), examples)


def _scattered(expected: Expected, rows: Rows) -> Anomaly:
    """SCAT: sessions in several partitions; an example has the first row of the first two."""
    known, width = np.flatnonzero(rows.expected_row >= 0), expected.rows
    pairs, first = np.unique(
        np.column_stack((rows.expected_row[known] // width, rows.partition[known])), axis=0, return_index=True
    )  # by session, partition
    again = np.flatnonzero(pairs[1:, 0] == pairs[:-1, 0]) + 1
    sessions, which = np.unique(pairs[again, 0], return_index=True)
    at = known[first]
    examples = tuple(
        {
            "session_key": expected.session_keys[session],
            "rows": [[int(rows.partition[row]), int(rows.offset[row])] for row in (at[second - 1], at[second])],
            "input": [[int(expected.last_partition[session]), int(expected.last_offset[session])]],
        }
        for session, second in zip(sessions[:EXAMPLES].tolist(), again[which[:EXAMPLES]].tolist(), strict=True)
    )
    return Anomaly(len(sessions), examples)
