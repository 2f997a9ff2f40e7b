"""`oncebench certify`: mistakes are found before anything starts.

Exit codes follow the required guarantee.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

from oncebench.certify.kept import Outcome
from oncebench.certify.scenarios import SCENARIOS
from oncebench.cli import cli
from oncebench.commands.own_jobs import certify as command
from oncebench.errors import ExitCode, Interrupted, UserError
from oncebench.scenario.supports import all_supports, installed, require_sinks
from oncebench.sinks.black_box.names import UserMistake
from oncebench.sinks.black_box.reader import TooSlow

MINE = "def write(df, batch_id): pass\ndef read(): return []\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def certify(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["certify", *arguments])


def test_a_function_that_does_not_load_within_the_start_timeout_is_no_usage_error(folder: Path) -> None:
    (folder / "slow.py").write_text(f"import threading\nthreading.Event().wait()\n{MINE}")
    error = certify("slow:write", "--reader", "mine:read", "--start-timeout", "1").exception
    assert isinstance(error, TooSlow)
    assert "no answer within 1 s. The machine may be busy" in str(error) and "--start-timeout" in str(error)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mine:writ", "--reader", "mine:read"), "module 'mine' has no 'writ'"),
        (("mine:write", "--reader", "absent:read"), "there is no module 'absent'"),
        (("mine:write", "--reader", "mine:read", "--beside", "mine:plain"), "module 'mine' has no 'plain'"),
        (("--reader", "mine:read"), "either MODULE:FUNCTION or --format NAME, not both"),
        (("mine:write", "--format", "parquet", "--reader", "mine:read"), "either MODULE:FUNCTION or --format NAME"),
        (("--format", "parquet", "--reader", "mine:read", "--beside", "mine:write"), "--beside compares two functions"),
        (("mine:write", "--reader", "mine:read", "--spark", "x"), "--spark x: this is not KEY=VALUE"),
        (("mine:write", "--reader", "mine:read", "--junit", "no/where.xml"), "there is no folder no. Create it"),
        (
            ("mine:write", "--reader", "mine:read", "--junit", "/proc/j.xml"),
            "--junit /proc/j.xml: it cannot be written",
        ),
        (("mine:write", "--reader", "mine:read", "--certificate", "/proc/c.md"), "--certificate /proc/c.md: it cannot"),
        (("mine:write", "--reader", "mine:read", "--results", "/proc/r"), "--results /proc/r: /proc cannot be written"),
        (("mine:write", "--reader", "mine:read", "--results", "mine.py/r"), "--results mine.py/r: mine.py cannot be"),
        (("mine:write", "--reader", "mine:read", "--option", "path=x"), "--option has no effect on a function"),
        (("--format", "x", "--reader", "mine:read", "--option", "k=1", "--option", "k=2"), "k=.. is given 2 times"),
        (("mine:write", "--reader", "mine:read", "--spark", "k=1", "--spark", "k=1"), "--spark k=.. is given 2 times"),
        (("m\udcff:write", "--reader", "mine:read"), r"an argument of this command is not UTF-8: m\xff:write."),
        (("mine:write", "--reader", "mine:read", "--setup", "a:\udc80"), r"not UTF-8: a:\x80."),
    ],
)
def test_a_mistake_is_named_before_anything_starts(arguments: tuple[str, ...], says: str, folder: Path) -> None:
    found = certify(*arguments)
    assert isinstance(found.exception, UserError | UserMistake)
    assert says in str(found.exception)
    assert found.exception.exit_code == 2
    assert [path.name for path in folder.iterdir() if path.name not in ("mine.py", "__pycache__")] == []


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("spark.hadoop.fs.s3a.secret.key=hush", "every user of this machine can read a secret in a command line"),
        ("spark.mongodb.connection.uri=mongodb://u:hush@h", "can read a secret in a command line"),
        ("spark.cosmos.accountKey=hush", "can read a secret in a command line"),
        ("spark.speculation=true", "rest on spark.speculation as the pipeline sets it. Remove it from --spark"),
    ],
)
def test_a_setting_that_no_run_takes_is_refused_before_anything_starts(
    setting: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_all", lambda *_: pytest.fail("a run was started"))
    found = certify("mine:write", "--reader", "mine:read", "--spark", setting)
    assert isinstance(found.exception, UserError), found.exception
    assert (says in str(found.exception), "hush" in str(found.exception)) == (True, False)
    assert found.exception.exit_code == 2


def test_a_password_of_a_format_comes_from_the_environment_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_all", lambda *_: iter(()))
    monkeypatch.setattr(command, "check", lambda *_: None)
    words = ("--format", "parquet", "--reader", "mine:read", "--option")
    for secret in ("hush", "hu$h", "100$"):
        found = certify(*words, f"dbPassword={secret}")
        assert isinstance(found.exception, UserError), found.exception
        assert "--option 'dbPassword=$MY_SECRET'" in str(found.exception)
        assert secret not in str(found.exception)
    monkeypatch.setenv("MINE", "hush")
    assert (
        "dbPassword=$MINE"
        in certify(*words, "dbPassword=$MINE").output
        + next((folder / "results" / "local" / "tables").glob("*.md")).read_text()
    )


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("url=jdbc:postgresql://h/db?user=u&password=hush", "url=jdbc:postgresql://h/db?user=u&password=$MY_SECRET"),
        ("connection.uri=mongodb://u:hush@h", "connection.uri=mongodb://u:$MY_SECRET@h"),
        ("kafka.sasl.jaas.config=x required password='hush';", "kafka.sasl.jaas.config=$MY_SECRET"),
        ("apiKey=hush", "apiKey=$MY_SECRET"),
    ],
)
def test_a_secret_inside_a_value_is_refused_with_the_option_to_give_instead(option: str, instead: str) -> None:
    found = certify("--format", "x", "--reader", "mine:read", "--option", option)
    assert isinstance(found.exception, UserError), found.exception
    assert f"--option '{instead}'" in str(found.exception)
    assert "hush" not in str(found.exception)
    assert found.exception.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "option",
    ["url=jdbc:postgresql://h/db?user=u&password=$MINE", "path=${ONCEBENCH_OUTPUT}/$ONCEBENCH_RUN",
     "key=partitionKey=id", "sep=$", "text=$$HOME_OF_ME", "kafka.bootstrap.servers=$ONCEBENCH_KAFKA"],
)  # fmt: skip
def test_a_usual_option_is_taken(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_all", lambda *_: iter(()))
    monkeypatch.setattr(command, "check", lambda *_: None)
    monkeypatch.setenv("MINE", "hush")
    assert f"--option {shlex.quote(option)}" in _page_of(
        certify("--format", "x", "--reader", "mine:read", "--option", option)
    )


def _page_of(found: Any) -> str:
    assert found.exit_code == 1, found.exception
    return next(Path("results/local/tables").glob("*.md")).read_text()


def test_a_variable_that_is_not_set_is_named_at_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_all", lambda *_: pytest.fail("a run was started"))
    monkeypatch.delenv("DB_PASSWRD", raising=False)
    found = certify("--format", "x", "--reader", "mine:read", "--option", "password=$DB_PASSWRD")
    assert isinstance(found.exception, UserError), found.exception
    assert str(found.exception).startswith("--option password: the environment variable DB_PASSWRD is not set. Set it")
    assert found.exception.exit_code == ExitCode.USAGE
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


def test_an_error_of_the_user_shows_no_secret_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hush-hush")
    text = "mine:read did not return the rows: no answer from /rows?api_key=hush, user hush-hush"
    died = outcome("kept")
    died = Outcome(died.scenario, {**died.report, "deaths": {"each_unasked": [{"why": text}]}})
    monkeypatch.setattr(command, "run_all", lambda *_: iter([died, Outcome(SCENARIOS[5], failure=text)]))
    found = certify("mine:write", "--reader", "mine:read", "--certificate", "c.md", "--junit", "j.xml")
    for shown in (found.stdout, (folder / "c.md").read_text(), (folder / "j.xml").read_text()):
        assert "/rows?api_key=***" in shown
        assert "hush" not in shown


def test_a_folder_whose_path_is_not_utf8_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = folder / "m\udcff"
    there.mkdir()
    monkeypatch.chdir(there)
    found = certify("mine:write", "--reader", "mine:read")
    assert isinstance(found.exception, UserError)
    assert r"/m\xff. Write it again" in str(found.exception)


def outcome(verdict: str, **anomalies: int) -> Outcome:
    report = {
        "verdict": verdict, "reasons": ["not hit"], "anomalies": anomalies, "faults": [],
        "rows": {"expected": 20, "visible": 20},
    }  # fmt: skip
    return Outcome(SCENARIOS[4], report)


def test_the_certificate_never_overwrites_the_junit_file(folder: Path) -> None:
    found = certify("mine:write", "--reader", "mine:read", "--certificate", "c.xml", "--junit", "c.xml")
    assert "--certificate and --junit both name c.xml" in str(found.exception)
    assert not (folder / "c.xml").exists()


@pytest.mark.parametrize(
    ("outcomes", "require", "code"),
    [
        ([outcome("kept")], "exactly-once", 0),
        ([outcome("broken", DUP=1)], "exactly-once", 3),
        ([outcome("broken", DUP=1)], "at-least-once", 0),
        ([outcome("broken", DUP=1)], None, 0),
        ([outcome("kept"), outcome("vacuous")], "exactly-once", 1),
        ([outcome("broken", DUP=1), outcome("unknown")], "exactly-once", 3),
    ],
)
def test_the_exit_code_follows_the_required_guarantee(
    outcomes: list[Outcome], require: str | None, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_all", lambda *_: iter(outcomes))
    required = [] if require is None else ["--require", require]
    found = certify("mine:write", "--reader", "mine:read", "--certificate", "c.md", "--junit", "j.xml", *required)
    assert found.exit_code == code, found.exception
    assert (folder / "c.md").read_text().startswith("# mine:write keeps ")
    assert "testsuite" in (folder / "j.xml").read_text()


@pytest.mark.parametrize(
    "error",
    [UserMistake("no column j"), UserError("Kafka died"), UserError("no Java", exit_code=ExitCode.ENVIRONMENT),
     Interrupted("interrupted after 1 of 12"), OSError("no disk"), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_no_file_of_an_earlier_run_survives_and_junit_has_the_error(
    error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(*_: Any) -> Any:
        assert not (folder / "c.md").exists() and not (folder / "j.xml").exists()
        yield outcome("kept")
        raise error

    for name in ("c.md", "j.xml"):
        (folder / name).write_text("older")
    monkeypatch.setattr(command, "run_all", runs)
    found = certify("mine:write", "--reader", "mine:read", "--certificate", "c.md", "--junit", "j.xml")
    assert found.exit_code != 0
    assert not (folder / "c.md").exists()
    xml = (folder / "j.xml").read_text()
    assert 'tests="2" failures="0" errors="1"' in xml
    assert f'<error message="{str(error) or "interrupted"}" />' in xml
    assert f'name="{SCENARIOS[4].name}"' in xml


@pytest.mark.parametrize(
    "words",
    [("--option", "path=x"), ("--spark", "x"), ("--setup", "mine:absent"), ("--beside", "absent:f")],
    ids=lambda words: words[0],
)
def test_a_mistake_in_the_command_leaves_no_file_of_an_earlier_run(words: tuple[str, str], folder: Path) -> None:
    (folder / "c.md").write_text("older")
    (folder / "j.xml").symlink_to("real.xml")
    (folder / "real.xml").write_text("older")
    found = certify("mine:write", "--reader", "mine:read", "--certificate", "c.md", "--junit", "j.xml", *words)
    assert getattr(found.exception, "exit_code", None) == ExitCode.USAGE
    assert not (folder / "c.md").exists()
    assert 'tests="1" failures="0" errors="1"' in (folder / "real.xml").read_text()


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[BaseException], Any]:
    """Runs the command with one kept scenario, and a price whose runs fail with this error."""

    def run(error: BaseException) -> Any:
        def fails(*_: Any) -> NoReturn:
            raise error

        monkeypatch.setattr(command, "run_all", lambda *_: iter([outcome("kept")]))
        monkeypatch.setattr(command, "run_prices", fails)
        return certify("mine:write", "--reader", "mine:read", "--beside", "mine:plain", "--certificate", "c.md")

    (folder / "mine.py").write_text(f"{MINE}plain = write\n")
    return run


@pytest.mark.parametrize("error", [UserError("Kafka died"), UserMistake("Kafka died"), OSError("Kafka died")])
def test_a_price_whose_runs_failed_does_not_lose_the_certificate(
    error: Exception, priced: Callable[[BaseException], Any], folder: Path
) -> None:
    found = priced(error)
    assert found.exit_code == 0, found.exception
    assert "price: not measured: Kafka died\n" in found.stdout
    page = (folder / "c.md").read_text()
    assert page.startswith("# mine:write keeps in the scenarios that ran: exactly-once\n")
    assert "\n- not measured: Kafka died\n" in page


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Interrupted("interrupted in round 2 of 5"), "interrupted in round 2 of 5"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_interruption_of_the_price_does_not_lose_the_certificate(
    error: BaseException, says: str, priced: Callable[[BaseException], Any], folder: Path
) -> None:
    found = priced(error)
    assert found.exit_code == ExitCode.INTERRUPTED, found.exception
    assert f"price: not measured: {says}\n" in found.stdout
    page = (folder / "c.md").read_text()
    assert page.startswith("# mine:write keeps in the scenarios that ran: exactly-once\n")
    assert f"\n- not measured: {says}\n" in page


def test_a_folder_for_the_results_keeps_the_users_own_folder_clean(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(command, "run_all", lambda *_: iter([outcome("kept")]))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    found = certify("mine:write", "--reader", "mine:read", "--results", str(elsewhere))
    assert found.exit_code == 0, found.exception
    assert sorted(path.suffix for path in (elsewhere / "tables").iterdir()) == [".md", ".xml"]
    assert not (folder / "results").exists()


def test_the_answer_is_printed_although_the_disk_refuses_the_certificate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(*_: Any) -> Any:
        (folder / "there").rmdir()
        yield outcome("kept")

    (folder / "there").mkdir()
    monkeypatch.setattr(command, "run_all", runs)
    found = certify("mine:write", "--reader", "mine:read", "--certificate", "there/c.md")
    assert "keeps exactly-once" in found.stdout
    assert isinstance(found.exception, UserError)
    assert "there/c.md can't be written: the folder does not exist" in str(found.exception)
    assert "take the same text from results/local/tables/certify-" in str(found.exception)


def test_a_function_of_the_user_is_in_no_list_and_no_matrix() -> None:
    assert "black-box" not in installed()
    assert "black-box" not in {sink for sink, _ in all_supports()}
    with pytest.raises(UserError, match="Test it with `oncebench certify`"):
        require_sinks(["black-box"])
