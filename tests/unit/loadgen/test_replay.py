"""A load that replays a file: which lines are records, their keys, ids, order and times."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from loadgen.config import LoadConfig, Replayed
from loadgen.errors import ConfigError
from loadgen.pacing import parse_shape
from loadgen.plan import plan_load
from loadgen.producer import _encoder
from loadgen.replay.events import Replay, schedule_in_order
from loadgen.replay.file import MAX_EVENT_BYTES, RecordFile
from loadgen.session import ENCODED, ENCODED_BYTES, next_step
from loadgen.share import Share


def file_of(folder: Path, content: bytes, key: str = "") -> RecordFile:
    path = folder / "orders.jsonl"
    path.write_bytes(content)
    return RecordFile(path, key)


def encoded(file: RecordFile, events: int, prefix: str = "") -> list[tuple[bytes | None, dict[str, object]]]:
    session, seq = np.divmod(np.arange(events), 100)
    times = np.arange(events, dtype=np.int64) * 10
    keys, values = Replay(file, 255, prefix).encode(session.astype(np.uint32), seq.astype(np.uint8), times)
    return [(key, json.loads(value)) for key, value in zip(keys, values, strict=True)]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b'{"a":1}\n{"a":2}\n', [(1, '{"a":1}'), (2, '{"a":2}')]),
        (b'{"a":1}\n{"a":2}', [(1, '{"a":1}'), (2, '{"a":2}')]),
        (b'\n \t\n{"a":1}\r\n\r\n  { "a" : 2 }  \n\n', [(3, '{"a":1}'), (5, '{ "a" : 2 }')]),
        (b'\xef\xbb\xbf{"a":1}\n', [(1, '{"a":1}')]),
        ('{"ключ":"日本 \U0001f600 \u2028"}\n'.encode(), [(1, '{"ключ":"日本 \U0001f600 \u2028"}')]),
        (b'{"a":"\\u0000 \\ud83d \x7f"}\n{}\n', [(1, '{"a":"\\u0000 \\ud83d \x7f"}'), (2, "{}")]),
    ],
    ids=["plain", "no last line break", "empty lines", "byte order mark", "unicode", "escapes"],
)
def test_each_line_but_an_empty_one_is_a_record(tmp_path: Path, content: bytes, texts: list[tuple[int, str]]) -> None:
    file = file_of(tmp_path, content)
    assert [(line.number, line.text) for line in file.lines()] == texts
    assert file.count() == len(texts)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a":1}\n\n{"a":}\n', r'^line 3 of .*orders.jsonl is not JSON: \{"a":\}\. Correct or remove it$'),
        (b'{"a":1}\ntotal 5\n', r"^line 2 of .* is not JSON: total 5\. Correct"),
        (b'{"a":"\xff"}\n', r'^line 1 of .* is not JSON: \{"a":"\."\}'),
        (b'{"a":NaN}\n', r"^line 1 of .* is not JSON"),
        (b'[{"a":1}]\n', r'^line 1 of .* is JSON, but no object: \[\{"a":1\}\]\. Write one object on each line$'),
        (b"17\n", r"^line 1 of .* is JSON, but no object: 17\."),
        (b"[\n", r"^line 1 of .* is not JSON: \[\."),
        (b'{"a":"' + b"x" * MAX_EVENT_BYTES + b'"}', r"^line 1 of .* is too long: .* may have 900,000 bytes"),
        (b'{"a":"' + b"\\\\" * (MAX_EVENT_BYTES // 3) + b'"}', r"^line 1 of .* is too long: "),
        (b'{"k":"' + b"x" * 500_000 + b'"}', r"^line 1 of .* is too long: "),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", r"^line 1 of .* is nested too deeply: "),
        (b"", r"^.*orders.jsonl has no record\. Give a file"),
        (b"\n\n", r"^.*orders.jsonl has no record\. Give a file"),
    ],
)
def test_what_is_no_record_is_refused_by_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        file_of(tmp_path, content, "k").count()


def test_a_pipe_is_refused_because_it_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"pipe is no regular file, and is read several times\. Copy it"):
        RecordFile(tmp_path / "pipe").count()


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^.*nowhere cannot be read: No such file or directory\. Give a file"):
        RecordFile(tmp_path / "nowhere").count()
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory\."):
        RecordFile(tmp_path).count()


def test_a_key_is_a_text_or_the_json_of_its_value(tmp_path: Path) -> None:
    values = ["Zoë", 5, 1.5, True, {"b": 1}, None, "", 2**64, 2**64 + 1]
    content = "\n".join(json.dumps({"k": value}) for value in values) + '\n{"other":1}\n'
    keys = [line.key for line in file_of(tmp_path, content.encode(), "k").lines()]
    assert keys == [
        "Zoë".encode(),
        b"5",
        b"1.5",
        b"true",
        b'{"b":1}',
        None,
        b"",
        b"%d" % 2**64,
        b"%d" % (2**64 + 1),
        None,
    ]
    assert {line.key for line in file_of(tmp_path, content.encode()).lines()} == {None}


def test_a_key_that_no_record_has_is_refused(tmp_path: Path) -> None:
    names = "".join(f'"f{number}":1,' for number in range(9))
    with pytest.raises(ConfigError, match=r'the field \'custmer\'\. The fields .* are: "f0", .*, "f7", \.\.\.$'):
        file_of(tmp_path, f'{{{names}"customer":2}}\n'.encode(), "custmer").count()


def test_an_event_has_its_line_and_the_text_unchanged(tmp_path: Path) -> None:
    text = '{ "note" : "é\\n\\u00e9 \\"" }'
    file = file_of(tmp_path, f'\n{text}\n{{"note":null}}\n'.encode(), "note")
    assert encoded(file, 5)[:2] == [
        ('é\né "'.encode(), {"id": "2", "load": "ff", "n": 0, "scheduled_at": 0, "record": text}),
        (None, {"id": "3", "load": "ff", "n": 1, "scheduled_at": 10, "record": '{"note":null}'}),
    ]
    assert [event["id"] for _, event in encoded(file, 5)] == ["2", "3", "2@2", "3@2", "2@3"]
    assert [event["id"] for _, event in encoded(file, 3, "w0-")] == ["w0-2", "w0-3", "w0-2@2"]


def test_generators_share_the_records_of_a_file(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"".join(b'{"n":%d}\n' % n for n in range(730)))
    shape = parse_shape("constant", 1000.0, 1460)
    sent = []
    for number in (1, 2, 3):
        replay, share = Replay(file, 1), Share(number, 3)
        for block in schedule_in_order(1460, shape):
            _, values = replay.encode(*share.of(block))
            sent += [json.loads(value) for value in values]
    assert sorted(event["n"] for event in sent) == list(range(1460))
    assert all(event["record"] == f'{{"n":{event["n"] % 730}}}' for event in sent)


def config_of(folder: Path, ledger: str, sessions: int, **more: object) -> LoadConfig:
    return LoadConfig("localhost:1", "input", 1000.0, sessions, folder / ledger, workload="records", **more)  # type: ignore[arg-type]


def test_the_load_ends_with_the_last_pass(tmp_path: Path) -> None:
    file = file_of(tmp_path, b'{"n":1}\n' * 70)
    replayed = Replayed(file.path, passes=3)
    assert config_of(tmp_path, "one", 3, replayed=replayed).events == 210
    shares = [
        config_of(tmp_path, f"two-{at}", 3, replayed=replayed, generator=at, generators=2, meeting_dir=tmp_path)
        for at in (1, 2)
    ]
    assert [share.own_events for share in shares] == [110, 100]
    assert config_of(tmp_path, "warm-up", 10, replayed=Replayed(file.path, passes=None)).events == 1000


def test_records_are_due_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = file_of(tmp_path, b'{"n":1}\n' * 250)
    ledger = plan_load(config_of(tmp_path, "ledger", 3, replayed=Replayed(file.path)), lambda: 1_000_000)
    numbers = ledger.session.astype(np.int64) * 100 + ledger.seq
    assert numbers.tolist() == list(range(250))
    assert np.diff(ledger.scheduled_us).tolist() == [1000] * 249, "1,000 records a second"
    assert (ledger.plan.events, ledger.plan.sessions) == (250, 3)


@pytest.mark.parametrize(("long", "at_once"), [(110, ENCODED), (47_000, 2), (900_000, 1)])
def test_long_events_are_encoded_few_at_a_time(long: int, at_once: int) -> None:
    step = 1
    for _ in range(3):
        step = next_step([bytes(long)] * step)
    assert step == at_once and (step == 1 or step * long <= ENCODED_BYTES)


def test_only_the_workload_records_takes_a_file(tmp_path: Path) -> None:
    for wrong in ({"workload": "records"}, {"replayed": {"path": "orders.jsonl"}}):
        with pytest.raises(ConfigError, match=r"^replayed: the workload records needs it"):
            LoadConfig("localhost:1", "input", 1000.0, 1, tmp_path, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("events_per_session", 50, "events_per_session: the records of a file are all sent"),
        ("skew", 1.0, "skew: the records of a file are spread by their own keys"),
    ],
)
def test_a_replayed_load_refuses_what_plans_sessions(tmp_path: Path, field: str, value: float, said: str) -> None:
    replayed = Replayed(file_of(tmp_path, b"{}").path)
    with pytest.raises(ConfigError, match=f"^{said}$"):
        LoadConfig("localhost:1", "input", 1000.0, 1, tmp_path, workload="records", replayed=replayed, **{field: value})  # type: ignore[arg-type]


def test_a_file_larger_than_memory_is_streamed(tmp_path: Path) -> None:
    file = file_of(tmp_path, b'{"a":"' + b"x" * 99_000 + b'"}\n')
    with file.path.open("ab") as out:
        for _ in range(399):
            out.write(b'{"a":"' + b"x" * 99_000 + b'"}\n')
    tracemalloc.start()
    try:
        assert file.count() == 400
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4_000_000, "of 40 MB"


@pytest.mark.parametrize(
    "changed", [b'{"n":1}\nnot json\n', b'{"n":1}\n{"n":"\xff"}\n', b'{"n":1}\n{"n":2}\n{"n":3}\n', b"\n"]
)
@pytest.mark.parametrize("sent", [0, 1, 2, 3])
@pytest.mark.parametrize("key", ["", "n"])
def test_a_file_that_changes_after_it_was_counted_is_refused(
    tmp_path: Path, changed: bytes, sent: int, key: str
) -> None:
    path = file_of(tmp_path, b'{"n":1}\n{"n":2}\n').path
    config = LoadConfig(
        "nowhere:1", "t", 10.0, 1, tmp_path / "ledger", workload="records", replayed=Replayed(path, key, passes=4)
    )
    assert (config.events, config.replayed is not None) == (8, True)
    replay = _encoder(config)
    row = np.arange(8)
    for number in range(sent):
        replay(*_event(row[number]))
    path.write_bytes(changed)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ConfigError, match=r"^.*orders\.jsonl has changed since it was counted\. Do not"):
        replay(*_event(row[sent]))


def _event(number: np.int64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(1, np.uint32), np.array([number], np.uint8), np.zeros(1, np.int64)
