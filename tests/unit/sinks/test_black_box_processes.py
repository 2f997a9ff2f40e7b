"""The process of a user's functions: what they start ends with it.

What they did not commit is not there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from oncebench.sinks.black_box.names import UserMistake
from oncebench.sinks.black_box.reader import Functions
from oncebench.sinks.reader import NotAnsweredError
from tests.unit.sinks.test_black_box import provide, target

MODULE = """
import os
def write(df, batch_id): pass
def row(**more):
    return {"session_key": "1-00000001", "j": 2, "events": 5, "total": 7, "checksum": 9, "ended_at": 11, **more}
def pooled():
    import concurrent.futures, multiprocessing
    global pool
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    return [row(j=each) for each in pool.map(abs, [1, 2])]
def outlived():
    if os.fork() == 0:
        import time; time.sleep(60); os._exit(0)
    os._exit(3)
def hangs():
    if os.fork() == 0:
        import time; time.sleep(60); os._exit(0)
    import time; time.sleep(60)
def kept_open():
    import sqlite3
    global held
    held = sqlite3.connect("held.sqlite")
    held.row_factory = sqlite3.Row
    return held
def clears(): kept_open().execute("DELETE FROM rows")
def reads_held():
    connection = globals().get("held") or kept_open()
    return [dict(each) for each in connection.execute("SELECT * FROM rows")]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


def test_a_set_up_that_does_not_commit_leaves_rows_that_are_refused(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "held.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE rows (session_key, j, events, total, checksum, ended_at)")
        connection.execute("INSERT INTO rows VALUES ('1', 2, 5, 7, 9, 11)")
    with pytest.raises(UserMistake, match=r"mine:reads_held returned 1 rows before the run .* Correct mine:clears"):
        provide(folder, read="mine:reads_held", setup="mine:clears")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("read", "says"),
    [("mine:outlived", "its process ended with exit code 3"), ("mine:hangs", r"gave no answer within 2 s")],
)
def test_a_process_that_outlives_a_function_holds_up_nothing(folder: Path, read: str, says: str) -> None:
    functions = Functions(target(folder, read=read, limit_s=2))
    with pytest.raises(NotAnsweredError, match=says):
        functions.call("read")
    functions.close()


@pytest.mark.timeout(30)
def test_the_workers_of_a_reader_end_with_it(folder: Path) -> None:
    functions = Functions(target(folder, read="mine:pooled"))
    assert len(functions.call("read")) == 2
    child = functions._child
    assert child is not None
    workers = psutil.Process(child.pid).children(recursive=True)
    assert workers
    functions.close()
    assert not psutil.wait_procs(workers, timeout=10)[1]
