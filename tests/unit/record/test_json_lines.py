"""JSON lines: whole reads, following a file, and lines that a kill cut off."""

from pathlib import Path
from unittest.mock import patch

import pytest

from oncebench.record import json_lines
from oncebench.record.json_lines import AllLines, Tail, read_lines


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_tail_returns_each_line_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = Tail(path)
    assert lines.fresh() == [] and lines.last() == {}
    _append(path, '{"n":1}\n{"n":')
    assert lines.fresh() == [{"n": 1}]
    assert lines.fresh() == []
    _append(path, "2}\n")
    assert lines.fresh() == [{"n": 2}]
    assert lines.last() == {"n": 2}


@pytest.mark.parametrize("torn", ['{"n"', '{"n":7,"m":{', '{"n":7,"m":"'])
def test_every_reader_keeps_the_object_behind_a_torn_line(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "lines.jsonl"
    _append(path, '{"n":1}\n' + torn + '{"n":2}\n{"n":3}\n')
    whole = [{"n": 1}, {"n": 2}, {"n": 3}]
    assert Tail(path).fresh() == whole
    assert list(AllLines(path).read()) == whole
    assert list(read_lines(path).items) == whole


def test_a_tail_skips_a_torn_line_that_nobody_continued(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    _append(path, '{"n":1}\n{"n"\n7\n{"n":3}\n')
    assert Tail(path).fresh() == [{"n": 1}, {"n": 3}]


def test_all_lines_include_the_one_behind_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = AllLines(path)
    assert lines.read() == ()
    _append(path, '{"n":1}\n{"n":2,"m"')
    assert lines.read() == ({"n": 1},)
    _append(path, '{"n":3}\n')
    assert lines.read() == ({"n": 1}, {"n": 3})


def test_all_lines_parse_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = AllLines(path)
    with patch.object(json_lines.json, "loads", wraps=json_lines.json.loads) as parsing:
        for number in range(3):
            _append(path, f'{{"n":{number}}}\n')
            assert len(lines.read()) == len(lines.read()) == number + 1
    assert [call.args[0] for call in parsing.call_args_list if call.args[0]] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']


def test_a_tail_opens_no_file_that_has_not_grown(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    _append(path, '{"n":1}\n')
    lines = Tail(path)
    lines.fresh()
    with patch.object(Path, "open", side_effect=AssertionError("opened")):
        assert lines.fresh() == []
