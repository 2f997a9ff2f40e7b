"""Scenario files: a saved run is the same run, and options override a file.

A wrong file is refused with its line.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from oncebench.cli import cli
from oncebench.commands import compare as compare_module
from oncebench.commands import run as run_module
from oncebench.commands.run import asked_cell, run
from oncebench.commands.scenario_files.argument import options_by_key
from oncebench.commands.scenario_files.form import KEYS
from oncebench.commands.shared.kafka import access_of
from oncebench.commands.shared.postgres import VARIABLE, given_postgres
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.scenario.cell import Cell

GOOD = ("--sink", "kafka", "--guarantee", "exactly-once")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def oncebench(*words: str) -> Any:
    return CliRunner().invoke(cli, list(words))


def settled(*words: str) -> tuple[Cell, KafkaAccess | None, str | None, float]:
    """The cell, the servers and the start timeout of `oncebench run` with these words."""
    context = run.make_context("run", list(words))
    try:
        values = context.params
        kafka = access_of(values["bootstrap_servers"], values["kafka_conf"], values["kafka_set"])
        return asked_cell(context, kafka), kafka, given_postgres(context), values["start_timeout_s"]
    finally:
        context.close()


def numbers(option: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[str]]:
    return st.just([]) | values.map(lambda value: [option, str(value)])


def joined(*parts: st.SearchStrategy[Sequence[str]]) -> st.SearchStrategy[list[str]]:
    return st.tuples(*parts).map(lambda found: [word for part in found for word in part])


CELLS = st.sampled_from(
    [
        "kafka exactly-once two-phase", "kafka exactly-once", "kafka at-least-once native", "files-jsonl at-most-once",
        "sqlite exactly-once idempotent", "postgres at-least-once",
    ]
).map(
    lambda cell: [
        word for pair in zip(("--sink", "--guarantee", "--variant"), cell.split(), strict=False) for word in pair
    ]
)  # fmt: skip
LENGTH = numbers("--sessions", st.integers(1, 10**6)) | numbers("--duration", st.floats(0.1, 1e4))
WORDS = joined(
    CELLS,
    LENGTH,
    numbers("--rate", st.just("max") | st.integers(1, 10**5) | st.floats(1.0, 1e5)),
    numbers("--workload", st.sampled_from(["sessions", "windows"])),
    numbers("--skew", st.floats(0, 10)),
    numbers("--record-bytes", st.integers(0, 1000)),
    numbers("--seed", st.integers(0, 2**63 - 1)),
    numbers("--trigger", st.integers(0, 10**6)),
    numbers("--partitions", st.integers(1, 64)),
    numbers("--open-sessions", st.integers(0, 10**6)),
    numbers("--max-events-per-batch", st.integers(1, 10**9)),
    numbers("--transaction-timeout", st.integers(1000, 10**6)),
    numbers("--checkpoint-writing", st.sampled_from(["tuned", "as-shipped"])),
    numbers("--state-store", st.sampled_from(["changelog", "snapshots"])),
    numbers("--master", st.sampled_from(["local[2]", "local[*]"])),
    numbers("--spark-conf", st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: f"spark.x={text}")),
    numbers("--warmup", st.floats(0, 86_400)),
    numbers("--generators", st.integers(1, 64)),
    numbers("--observers", st.integers(1, 3)),
    numbers("--start-timeout", st.floats(1, 86_400)),
    st.lists(st.sampled_from(["after-commit:kill", "mid-write:stop:3", "batch-start:kill@batch=9"]), max_size=3).map(
        lambda faults: [word for fault in faults for word in ("--fault", fault)]
    ),
    joined(numbers("--random-kills", st.integers(1, 9)), numbers("--outage", st.just(0.0))),
)


@settings(max_examples=60, deadline=None)
@given(words=WORDS)
def test_a_saved_run_is_the_same_run(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("saved") / "s.toml"
    try:
        asked = settled(*words)
    except UserError:  # such a cell cannot be run, and nothing is saved
        assert isinstance(oncebench("run", *words, "--save", str(file)).exception, UserError)
        assert not file.exists()
        return
    saved = oncebench("run", *words, "--save", str(file))
    assert saved.exit_code == 0, saved.exception
    assert settled(str(file)) == asked
    assert asked[0].title in saved.stdout
    again = file.with_name("again.toml")
    assert oncebench("run", str(file), "--save", str(again)).exit_code == 0
    assert again.read_text() == file.read_text()


@pytest.mark.parametrize(
    "words",
    [
        (*GOOD, "--on-lost", "drop"),
        (*GOOD, "--random-kills", "2", "--outage", "7.5"),
        (*GOOD, "--brokers", "3", "--fault", "mid-commit:stop-broker:5"),
        (*GOOD, "--shape", "burst:4000:5:20"),
        (*GOOD, "--cluster", "2"),
        (*GOOD, "--bootstrap-servers", "me:9092", "--kafka-conf", "k.properties", "--kafka-set", "client.id=a=b"),
        ("--sink", "postgres", "--guarantee", "exactly-once", "--postgres", "host=h dbname=d"),
    ],
)
def test_settings_of_servers_and_faults_are_saved(words: tuple[str, ...], folder: Path) -> None:
    (folder / "k.properties").write_text("security.protocol=PLAINTEXT\n")
    (folder / "kept").mkdir()
    assert oncebench("run", *words, "--save", "kept/s.toml").exit_code == 0
    assert settled("kept/s.toml") == settled(*words)
    assert VARIABLE not in os.environ


def test_a_file_has_each_option_that_decides_about_a_run() -> None:
    others = {"save", "json", "work-dir", "keep"}
    options = {each.opts[0].removeprefix("--") for each in run.params if isinstance(each, click.Option)}
    assert options - others == set(KEYS) == set(options_by_key(run))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), {}),
        (("--seed", "9"), {"seed": 9}),
        (("--sessions", "5"), {"sessions": 5}),
        (("--duration", "4"), {"sessions": 80}),
        (("--fault", "mid-write:kill"), {"faults": ("mid-write:kill",)}),
        (("--guarantee", "at-least-once"), {"guarantee": "at-least-once", "variant": "acknowledged"}),
        (("--sink", "sqlite"), {"sink": "sqlite", "variant": "idempotent"}),
    ],
)
def test_an_option_overrides_the_file(words: tuple[str, ...], expected: dict[str, Any], folder: Path) -> None:
    lines = 'sink = "kafka"\nguarantee = "exactly-once"\nvariant = "two-phase"\nduration = 10\non-lost = "drop"\n'
    (folder / "s.toml").write_text(f'{lines}fault = ["after-commit:kill", "batch-start:kill"]\n')
    file = {"sink": "kafka", "guarantee": "exactly-once", "variant": "two-phase", "sessions": 200, "seed": 1,
            "faults": ("after-commit:kill", "batch-start:kill")}  # fmt: skip
    cell = settled("s.toml", *words)[0]
    assert {name: getattr(cell, name) for name in file} == {**file, **expected}


def test_a_cluster_and_a_master_override_each_other(folder: Path) -> None:
    good = "sink = 'kafka'\nguarantee = 'exactly-once'\n"
    (folder / "cluster.toml").write_text(f"{good}cluster = 2\n")
    (folder / "master.toml").write_text(f"{good}master = 'local[4]'\n")
    found = settled("cluster.toml", "--master", "local[3]")[0], settled("master.toml", "--cluster", "3")[0]
    assert [(cell.master, cell.workers) for cell in found] == [("local[3]", 0), ("local[2]", 3)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("guarante = 1", "s.toml:4: there is no key 'guarante'. Write guarantee"),
        ("[x]", "s.toml:4: there is no key 'x'. Remove it"),
        ("keep = true", "s.toml:4: there is no key 'keep'."),
        ("seed = '1'", "s.toml:4: seed = '1' is not a whole number"),
        ("seed = true", "s.toml:4: seed = True is not a whole number"),
        ("seed = 1.5", "s.toml:4: seed = 1.5 is not a whole number"),
        ("seed = -1", "s.toml:4: seed = -1: -1 is not in the range"),
        ("outage = '1'", "s.toml:4: outage = '1' is not a number"),
        ("warmup = nan", "s.toml:4: warmup = nan: nan is not a number of seconds"),
        ("shape = 3", "s.toml:4: shape = 3 is not a text in quotes"),
        ("brokers = 2", "s.toml:4: brokers = 2: "),
        ("rate = [1]", 's.toml:4: rate = [1] is not a number of events per second, or "max"'),
        ("rate = 'fast'", "s.toml:4: rate: 'fast' is neither a number"),
        ("fault = 'mid-write'", "s.toml:4: fault = 'mid-write' is not a list of texts"),
        ("fault = [1]", "s.toml:4: fault = [1] is not a list of texts in quotes"),
        ("fault = ['nowhere']", "s.toml: unknown failpoint 'nowhere'"),
        ("state-store = 'big'", "s.toml:4: state-store = 'big': 'big' is not one of"),
        ("on-lost = 'drop'", "s.toml:4: --on-lost has no effect here"),
        ("outage = 5", "s.toml:4: --outage has no effect here"),
        ("postgres = 'host=h'", "s.toml:4: --postgres has no effect here"),
        ("kafka-set = ['a=b']", "s.toml:4: --kafka-set has no effect here"),
        ("duration = 1\nsessions = 3", "s.toml:5: duration and sessions give the length of the load twice"),
        ("sink = 'sqlite'", "s.toml is not a TOML file: Cannot overwrite a value (at line 4"),
        ("seed 1", "s.toml is not a TOML file: "),
        ("variant = 'two-phase'", "s.toml:2: sink kafka has no variant 'two-phase' of at-least-once"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(line: str, says: str, folder: Path) -> None:
    (folder / "s.toml").write_text(f'# mine\nsink = "kafka"\nguarantee = "at-least-once"\n{line}\n')
    refused = oncebench("run", "s.toml").exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, says in str(refused)) == (ExitCode.USAGE, True), refused
    assert sorted(path.name for path in folder.iterdir()) == ["s.toml"]


def test_an_empty_path_means_none(folder: Path) -> None:
    (folder / "s.toml").write_text('sink = "kafka"\nguarantee = "at-least-once"\nrecords = ""\nkafka-conf = ""\n')
    assert settled("s.toml") == settled("--sink", "kafka", "--guarantee", "at-least-once")


def test_a_byte_order_mark_is_no_part_of_a_file(folder: Path) -> None:
    (folder / "s.toml").write_bytes(b'\xef\xbb\xbfsink = "kafka"\nguarantee = "at-least-once"\n')
    assert settled("s.toml")[0].sink == "kafka"


def test_a_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    (folder / "bytes.toml").write_bytes(b"sink = '\xff'\n")
    for name, says in (("none.toml", "none.toml cannot be read: No such file"), ("bytes.toml", "is not a TOML file"),
                       (".", "cannot be read: Is a directory")):  # fmt: skip
        refused = oncebench("run", name).exception
        assert isinstance(refused, UserError)
        assert says in str(refused)


SECRETS = [
    ("sink = 'postgres'\npostgres = 'postgresql://me:hidden@h/d'", "s.toml:3: postgres contains a password"),
    ("sink = 'postgres'\npostgres = 'host=h password=hidden'", "s.toml:3: postgres contains a password"),
    ("sink = 'kafka'\nkafka-set = ['ssl.key.password=hidden']", "s.toml:3: kafka-set ssl.key.password holds a secret"),
    ("sink = 'kafka'\nspark-conf = ['spark.x.token=hidden']", "s.toml:3: spark-conf spark.x.token holds a secret"),
    ("sink = 'kafka'\nspark-conf = ['spark.x=http://me:hidden@h/']", "s.toml:3: spark-conf contains a password"),
]


@pytest.mark.parametrize(("lines", "says"), SECRETS)
def test_a_file_with_a_secret_is_refused(lines: str, says: str, folder: Path) -> None:
    (folder / "s.toml").write_text(f"guarantee = 'at-least-once'\n{lines}\n")
    refused = str(oncebench("run", "s.toml").exception)
    assert says in refused
    assert "hidden" not in refused


@pytest.mark.parametrize("lines", [lines for lines, _ in SECRETS])
def test_a_secret_is_not_saved(lines: str, folder: Path) -> None:
    values = tomllib.loads(lines)
    words = [word for key, value in values.items() for each in ([value] if isinstance(value, str) else value)
             for word in (f"--{key}", each)]  # fmt: skip
    found = oncebench("run", "--guarantee", "at-least-once", *words, "--save", "s.toml")
    assert found.exit_code != 0
    assert not (folder / "s.toml").exists()
    assert "hidden" not in f"{found.output}{found.exception}"


def test_a_server_of_the_environment_is_not_saved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "postgresql://me:hidden@h/d")
    assert oncebench("run", "--sink", "postgres", "--guarantee", "at-least-once", "--save", "s.toml").exit_code == 0
    assert "hidden" not in (folder / "s.toml").read_text()


def test_a_file_that_is_there_is_never_overwritten(folder: Path) -> None:
    (folder / "s.toml").write_text("# mine\n")
    refused = oncebench("run", *GOOD, "--save", "s.toml").exception
    assert "--save s.toml: it is there already" in str(refused)
    assert (folder / "s.toml").read_text() == "# mine\n"


def test_saving_runs_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "run_one", lambda *_, **__: pytest.fail("it ran"))
    found = oncebench("run", *GOOD, "--save", "s.toml")
    assert found.stdout == "kafka exactly-once two-phase, healthy\nRun it with: oncebench run s.toml\n"
    assert [path.name for path in folder.iterdir()] == ["s.toml"]


@pytest.fixture
def compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Saves two scenarios, and returns the arguments with which `compare` would run a series."""
    oncebench("run", *GOOD, "--seed", "7", "--start-timeout", "300", "--save", "one.toml")
    oncebench("run", "--sink", "sqlite", "--guarantee", "exactly-once", "--rate", "50", "--save", "two.toml")

    def start(*words: str) -> Any:
        seen: list[Any] = []

        def instead(*arguments: Any) -> Any:
            seen.extend(arguments)
            raise UserError("not run")

        monkeypatch.setattr(compare_module, "run_series", instead)
        found = oncebench("compare", *words)
        return seen or found.exception

    return start


def test_compare_runs_the_cells_of_files(compared: Any) -> None:
    cells, _, workspace, *_ = compared("one.toml", "two.toml", "--repeat", "2")
    assert cells[:2] == [settled("one.toml")[0], settled("two.toml")[0]]
    assert (len(cells), workspace.kafka, workspace.start_timeout_s) == (4, None, 300.0)


def test_an_option_of_compare_overrides_every_file(compared: Any) -> None:
    cells, _, workspace, *_ = compared("one.toml", "two.toml", "--sessions", "9", "--bootstrap-servers", "me:9092")
    assert [cell.sessions for cell in cells] == [9, 9]
    assert [cell.rate for cell in cells] == [2000.0, 50.0]
    assert workspace.kafka == KafkaAccess("me:9092")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--profile", "cost"), "--profile chooses cells, and the scenario files name theirs"),
        (("--sink", "kafka"), "--sink chooses cells, and the scenario files name theirs"),
        (("--only", "nothing"), "no cell's title has all words of 'nothing'"),
        (("other.toml",), "one.toml and other.toml name different servers"),
        (("wrong.toml",), "wrong.toml:1: there is no key 'sinc'. Write sink"),
    ],
)
def test_files_that_do_not_fit_are_refused(words: tuple[str, ...], says: str, compared: Any, folder: Path) -> None:
    (folder / "wrong.toml").write_text("sinc = 'kafka'\n")
    (folder / "other.toml").write_text("sink = 'kafka'\nguarantee = 'exactly-once'\nbootstrap-servers = 'other:9092'\n")
    assert says in str(compared("one.toml", *words))


@pytest.mark.parametrize(
    ("differs", "refused"),
    [
        ("guarantee = 'at-least-once'", True),
        ("variant = 'idempotent'", True),
        ("guarantee = 'at-least-once'\nrate = 50", False),  # another load: nothing is compared in pairs
        ("", False),  # the same cell with another load
    ],
)
def test_guarantees_that_are_compared_need_one_seed(differs: str, refused: bool, compared: Any, folder: Path) -> None:
    guarantee = "" if differs.startswith("guarantee") else "guarantee = 'exactly-once'\n"
    (folder / "other.toml").write_text(f"sink = 'kafka'\n{guarantee}seed = 8\n{differs}\n")
    oncebench("run", "--sink", "kafka", "--guarantee", "exactly-once", "--seed", "7", "--save", "seven.toml")
    found = compared("seven.toml", "other.toml", "--repeat", "6")
    if refused:
        assert isinstance(found, UserError)
        assert (found.exit_code, str(found)) == (
            2, "seven.toml has seed 7 and other.toml has seed 8. Guarantees are compared by runs of the same seed. "
            "Give --seed, which overrides the files",
        )  # fmt: skip
        cells = compared("seven.toml", "other.toml", "--seed", "3")[0]
        assert [cell.seed for cell in cells] == [3, 3]
    else:
        assert [cell.seed for cell in found[0][:2]] == [7, 8]
