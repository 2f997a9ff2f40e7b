"""A user's functions: loaded with helpful refusals, and read as rows.

Each row has a place of its own.
"""

from __future__ import annotations

import json
import os
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncebench.kafka_access.access import KafkaAccess
from oncebench.sinks.black_box import reader as reading
from oncebench.sinks.black_box.names import UserMistake, refuse_taken_names
from oncebench.sinks.black_box.reader import BlackBoxReader, Functions, TooSlow, Unreadable, new_rows
from oncebench.sinks.black_box.suite import SUITE_SINKS
from oncebench.sinks.reader import NotAnsweredError, Rows, rows_of
from oncebench.sinks.suite import Place
from pipeline.rows import KEY, SCHEMA
from tests import ROOT

LIBRARIES = ("stdlib", "purelib")

MODULE = """
import decimal, os, pathlib
NUMBER = 3
def write(df, batch_id): pass
def one(df): pass
def row(**more):
    return {"session_key": "1-00000001", "j": 2, "events": 5, "total": 7, "checksum": 9, "ended_at": 11, **more}
def read(): yield row(); yield row(); yield row(j=3, extra="x", total=decimal.Decimal("7"), checksum=9.0)
def nothing(): return []
def twice(): return [row(), row()]
def torn_row(): return [{"session_key": "2", "j": 2, "events": 5}, row()]
def short(): return [{"session_key": "1", "j": 2}]
def tuples(): return [(1, 2)]
def none(): return None
def raises(): raise OSError("no such table")
def prints(): print("hello"); return [row()]
def exits(): os._exit(3)
def gives_up(): raise SystemExit("no server")
def asks(): return [row(session_key=input("name? "))]
async def later(df=None, batch_id=None): pass
async def some(df=None, batch_id=None): yield row()
def yields(df=None, batch_id=None): yield row()
def hidden(df=None, batch_id=None): return later()
class Writer:
    async def __call__(self, df, batch_id): pass
writer = Writer()
def huge(): return [row(total=2**70)]
def torn(): raise ValueError(chr(0xdcff))
def where(): return [row(session_key=os.getcwd()), row(session_key=os.environ["ONCEBENCH_OUTPUT"])]
def leaves(): pathlib.Path("emptied").touch()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "wrong.py").write_text("import not_there\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    (tmp_path / "quits.py").write_text("import sys\nsys.exit(4)\n")
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "ends.py").write_text("import os\nos._exit(4)\n")
    return tmp_path


def target(folder: Path, **fields: Any) -> dict[str, Any]:
    (folder / "run" / "output").mkdir(parents=True, exist_ok=True)
    return {
        "write": "mine:write", "format": "", "options": {}, "read": "mine:read", "setup": "", "cwd": str(folder),
        "spark": {}, "run": "r", "folder": str(folder / "run" / "output"), "kafka": "", "columns": SCHEMA.names,
        "key": KEY, **fields,
    }  # fmt: skip


@pytest.fixture
def opened() -> Iterator[list[Functions]]:
    made: list[Functions] = []
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"write": "mine"}, "'mine' is not module:function. Give both names"),
        ({"write": "absent:f"}, "there is no module 'absent' in /.*Run the command in the folder"),
        ({"write": "wrong:f"}, "module 'wrong' imports 'not_there', which is not installed"),
        ({"write": "torn:f"}, "the import of 'torn' raised SyntaxError"),
        ({"write": "mine:writ"}, "module 'mine' has no 'writ'. Its functions are: .*write"),
        ({"write": "mine:NUMBER"}, "mine:NUMBER is of type int, not a function"),
        ({"write": "mine:one"}, r"a run calls mine:one\(df, batch_id\), which fails: too many"),
        ({"read": "mine:write"}, r"a run calls mine:write\(\), which fails: missing"),
        ({"setup": "mine:one"}, r"a run calls mine:one\(\), which fails"),
        ({"write": "./mine:write"}, r"names a file. Give the module without a path.*: mine:write\.$"),
        ({"write": "mine.py:write"}, r"names a file. Give the module without a path.*: mine:write\.$"),
        ({"read": "sub/mine.py:read"}, r"names a file. Give the module without a path.*: sub\.mine:read\.$"),
        ({"read": "/mine.py:read"}, r"names a file"),
        ({"setup": ".mine:leaves"}, r"begins with a dot. Give the whole name of the module: mine:leaves\.$"),
        ({"write": "quits:f"}, r"the import of 'quits' raised SystemExit\(4\). Put the code that ends the program"),
        ({"write": "dies:f"}, "dies:f did not load: SIGSEGV ended its process. Import its module"),
        ({"read": "ends:f"}, "ends:f did not load: its process ended with exit code 4. Import its module"),
        ({"write": "mine:later"}, "mine:later is an async function, so a call of it runs nothing"),
        ({"write": "mine:writer"}, "mine:writer is an async function"),
        ({"write": "mine:some"}, "mine:some is an async function"),
        ({"read": "mine:some"}, "mine:some is an async function"),
        ({"write": "mine:yields"}, "mine:yields is a generator function, because it has a `yield`"),
        ({"setup": "mine:yields"}, "mine:yields is a generator function"),
        ({"setup": "mine:later"}, "mine:later is an async function"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_with_what_to_change(
    folder: Path, opened: list[Functions], fields: dict[str, str], says: str
) -> None:
    opened.append(Functions(target(folder, **fields)))
    with pytest.raises(UserMistake, match=says) as refused:
        opened[0].check()
    assert refused.value.exit_code == 2


def test_a_set_up_that_has_not_run_is_refused(folder: Path, opened: list[Functions]) -> None:
    opened.append(Functions(target(folder, setup="mine:hidden")))
    with pytest.raises(UserMistake, match="mine:hidden returned a coroutine, so a call of it runs nothing"):
        opened[0].call("setup")


@pytest.mark.parametrize("name", ["pipeline.py", "oncebench/__init__.py", "random.py", "json/__init__.py", "kafka.py"])
def test_a_file_that_would_replace_a_module_of_ours_is_refused(
    name: str, folder: Path, opened: list[Functions]
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("def write(df, batch_id): pass\n")
    opened.append(Functions(target(folder)))
    with pytest.raises(
        UserMistake, match=f"{name.removesuffix('/__init__.py')} has the name of .* Rename it"
    ) as refused:
        opened[0].check()
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize("name", ["pipeline/__init__.py", "random.py", "kafka.py"])
def test_a_file_on_pythonpath_that_would_replace_a_module_of_ours_is_refused(
    name: str, folder: Path, opened: list[Functions], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder / "src"
    (source / name).parent.mkdir(parents=True)
    (source / name).touch()
    # After the real ones, so that the process of the functions starts.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((*(sysconfig.get_path(each) for each in LIBRARIES), str(source))))
    opened.append(Functions(target(folder)))
    with pytest.raises(
        UserMistake, match=f"{name.removesuffix('/__init__.py')} has the name of .* Rename it"
    ) as refused:
        opened[0].check()
    assert str(refused.value).endswith(f"take {source} out of PYTHONPATH.")


def test_a_folder_of_installed_packages_may_be_on_pythonpath() -> None:
    refuse_taken_names(*(Path(sysconfig.get_path(name)) for name in LIBRARIES), ROOT)


@pytest.mark.parametrize("name", ["tools.py", "tests/__init__.py", "kafka/settings.txt"])
def test_a_file_whose_name_no_process_needs_is_the_users_own(name: str, folder: Path, opened: list[Functions]) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(f"{MODULE}\nimport confluent_kafka, kafka.errors\n")
    module = "mine" if name.endswith(".txt") else name.removesuffix(".py").removesuffix("/__init__")
    opened.append(Functions(target(folder, write=f"{module}:write", read=f"{module}:read")))
    opened[0].check()
    assert len(opened[0].call("read")) == 3


def test_a_function_that_reads_standard_input_finds_it_empty(folder: Path, opened: list[Functions]) -> None:
    opened.append(Functions(target(folder, read="mine:asks")))
    with pytest.raises(NotAnsweredError, match="EOFError"):
        opened[0].call("read")


@pytest.mark.parametrize(
    ("read", "says"),
    [("mine:gives_up", "SystemExit: no server"), ("mine:exits", "^its process ended with exit code 3$")],
)
def test_a_function_that_ends_its_process_is_named_with_the_end(
    read: str, says: str, folder: Path, opened: list[Functions]
) -> None:
    opened.append(Functions(target(folder, read=read)))
    with pytest.raises(NotAnsweredError, match=says):
        opened[0].call("read")


def test_a_function_that_takes_too_long_is_named_with_its_limit(folder: Path, opened: list[Functions]) -> None:
    opened.append(Functions(target(folder, limit_s=0.01)))
    with pytest.raises(NotAnsweredError, match=r"^its process gave no answer within 0\.01 s$"):
        opened[0].call("read")


BUSY = (
    r": its process gave no answer within 0\.01 s\. The machine may be busy: run the command again when it is not, or "
    r"with a longer --start-timeout\. If the machine is idle: "
)


@pytest.mark.parametrize(
    ("loaded", "name"), [("", "the process of your functions"), ("check names", "mine:write")], ids=["start", "load"]
)
def test_a_function_that_does_not_load_in_time_is_no_mistake_of_the_user(
    folder: Path, opened: list[Functions], monkeypatch: pytest.MonkeyPatch, loaded: str, name: str
) -> None:
    opened.append(Functions(target(folder, limit_s=0.01)))
    ask = opened[0].call
    monkeypatch.setattr(opened[0], "call", lambda command: [] if command == loaded else ask(command))
    with pytest.raises(TooSlow, match=f"^{name} did not load{BUSY}import its module in a Python shell"):
        opened[0].check()
    assert not hasattr(TooSlow, "exit_code"), "the command ends as after an error, not as after a wrong command line"


def test_a_reader_without_an_answer_in_time_at_the_end_is_no_mistake_of_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncebench.sinks.black_box.reader.AGAIN_S", 0.0)
    reader = BlackBoxReader(target(folder, limit_s=0.01))
    with pytest.raises(TooSlow, match=f"^mine:read did not return the rows at the end of the run{BUSY}correct the"):
        reader.read_to_end(lambda rows: None)
    reader.close()


@pytest.mark.parametrize(
    ("read", "says"),
    [
        ("mine:short", "lacks events, total, checksum, ended_at; it has session_key, j"),
        ("mine:tuples", "returned a row of type tuple. Return each row as a dict"),
        ("mine:none", "returned NoneType, not rows. Return or yield one dict per row"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused(folder: Path, read: str, says: str) -> None:
    reader = BlackBoxReader(target(folder, read=read))
    with pytest.raises(UserMistake, match=says):
        reader.poll(0)
    reader.close()


def test_each_copy_of_a_row_has_a_place_of_its_own_and_the_same_place_in_every_read(folder: Path) -> None:
    first, second = BlackBoxReader(target(folder)), BlackBoxReader(target(folder))
    polled = [first.poll(0) for _ in range(3)]
    assert [len(each) for each in polled] == [2, 1, 0]
    final = list[Rows]()
    second.read_to_end(final.append)
    (rows,) = final
    places = set(zip(rows.partition, rows.offset, strict=True))
    assert len(places) == 3
    assert places == {place for each in polled for place in zip(each.partition, each.offset, strict=True)}
    assert json.loads(rows.value[2] or b"") == {
        "session_key": "1-00000001", "j": 3, "events": 5, "total": 7, "checksum": 9, "ended_at": 11,
    }  # fmt: skip
    assert rows.key == [b"1-00000001"] * 3
    first.close()
    second.close()


def test_a_row_that_becomes_visible_later_is_new_once(folder: Path) -> None:
    shown: list[list[Any]] = [["a", 1, 5, 1, 1, 1]]
    fresh = new_rows(target(folder), lambda: shown, lambda: False)
    assert len(fresh()) == 1
    shown = [["a", 1, 5, 1, 1, 1], ["a", 2, 5, 1, 1, 1]]
    assert len(fresh()) == 1
    assert len(fresh()) == 0


def test_a_further_copy_counts_only_if_the_next_call_has_it_too(folder: Path) -> None:
    one, other = ["a", 1, 5, 1, 1, 1], ["a", 2, 5, 1, 1, 1]
    answers = iter([[one, one], [one, other], [one, other, other], [one, other, other], [one, other, other]])
    fresh = new_rows(target(folder), lambda: next(answers), lambda: False)
    assert [len(fresh()) for _ in range(5)] == [1, 1, 0, 1, 0]
    assert len(new_rows(target(folder), lambda: [one, one], lambda: True)()) == 2


def test_a_final_read_has_every_copy(folder: Path) -> None:
    reader, found = BlackBoxReader(target(folder, read="mine:twice")), list[int]()
    reader.read_to_end(lambda rows: found.append(len(rows)))
    assert found == [2]
    reader.close()


def test_what_a_reader_prints_does_not_mix_with_its_rows(folder: Path, opened: list[Functions]) -> None:
    opened.append(Functions(target(folder, read="mine:prints")))
    assert len(opened[0].call("read")) == 1
    assert "hello" in (folder / "run" / "logs" / "reader.log").read_text()


def test_a_function_runs_in_the_users_folder_with_the_runs_environment(folder: Path, opened: list[Functions]) -> None:
    opened.append(Functions(target(folder, read="mine:where")))
    assert [row[0] for row in opened[0].call("read")] == [str(folder), str(folder / "run" / "output")]


def test_a_reader_that_raises_or_dies_during_a_run_is_asked_again(folder: Path, opened: list[Functions]) -> None:
    for read in ("mine:raises", "mine:exits"):
        opened.append(Functions(target(folder, read=read)))
        for _ in range(2):
            with pytest.raises(NotAnsweredError):
                opened[-1].call("read")


@pytest.mark.parametrize(
    ("read", "says"), [("mine:huge", "Integer exceeds 64-bit range"), ("mine:torn", r"ValueError: \\udcff")]
)
def test_what_json_cannot_contain_is_an_error_with_its_cause(
    folder: Path, opened: list[Functions], read: str, says: str
) -> None:
    opened.append(Functions(target(folder, read=read)))
    with pytest.raises(NotAnsweredError, match=says):
        opened[0].call("read")


def test_a_reader_that_still_raises_at_the_end_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebench.sinks.black_box.reader.AGAIN_S", 0.0)
    reader = BlackBoxReader(target(folder, read="mine:raises"))
    assert len(reader.poll(0)) == 0
    with pytest.raises(Unreadable, match=r"mine:raises did not return the rows .* no such table"):
        reader.read_to_end(lambda rows: None)
    reader.close()


def provide(folder: Path, limit_s: float | None = None, **fields: str) -> dict[str, Any]:
    given = target(folder, **fields)
    place = Place("r", folder / "run" / "output", 2, KafkaAccess("x:1"), str, SCHEMA, KEY, json.dumps(given), limit_s)
    return SUITE_SINKS[0].provide(place)


def test_an_output_with_rows_is_refused_before_a_run(folder: Path) -> None:
    with pytest.raises(UserMistake, match=r"mine:read returned 3 rows before the run wrote any. Give --setup"):
        provide(folder)


def test_a_setup_is_called_before_a_run(folder: Path) -> None:
    made = provide(folder, read="mine:nothing", setup="mine:leaves")
    assert (folder / "emptied").exists()
    assert made["kafka"] == "x:1"
    assert provide(folder, 240.0, read="mine:nothing")["limit_s"] == 240.0


def test_a_setup_that_fails_is_refused(folder: Path) -> None:
    with pytest.raises(UserMistake, match=r"mine:raises failed before the run: OSError: no such table\. Correct"):
        provide(folder, setup="mine:raises")
    with pytest.raises(TooSlow, match=f"^mine:leaves failed before the run{BUSY}correct the function"):
        provide(folder, 0.01, setup="mine:leaves")


def test_a_reader_is_not_asked_all_the_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSE_S", 30.0)
    reader = BlackBoxReader(target(folder))
    calls: list[float] = []
    reader._fresh = lambda: (calls.append(time.monotonic()), rows_of((), (), (), KEY, 0))[1]  # type: ignore[method-assign]
    for _ in range(5):
        reader.poll(0.02)
    assert len(calls) == 1
    reader.poll(0)
    reader.poll(0)
    assert len(calls) == 3
    assert calls[-1] - calls[0] < 15, "a timeout of 0 reads at once"
    reader.close()


def test_a_row_that_lacks_a_column_is_null_where_another_row_has_it(folder: Path) -> None:
    reader = BlackBoxReader(target(folder, read="mine:torn_row"))
    rows = reader.poll(0)
    assert json.loads(rows.value[0] or b"") == {
        "session_key": "2", "j": 2, "events": 5, "total": None, "checksum": None, "ended_at": None,
    }  # fmt: skip
    reader.close()
