"""Arrow streams: what they hold stays readable when memory is given back."""

from pathlib import Path

from oncebench.record import FINAL
from oncebench.record.streams import read_stream, write_stream


def test_rows_stay_readable_after_their_memory_was_given_back(tmp_path: Path) -> None:
    write_stream(tmp_path / "final.arrow", FINAL, [{"partition": [0, 1], "offset": [7, 8], "timestamp_ms": [1, 2],
                                                    "key": [b"a", None], "value": [b"x" * 9_000, b"y"]}])  # fmt: skip
    stream = read_stream(tmp_path / "final.arrow", FINAL)
    before = stream.table.to_pydict()
    stream.release()
    assert stream.table.to_pydict() == before
