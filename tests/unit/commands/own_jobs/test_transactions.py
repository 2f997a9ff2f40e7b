"""`oncebench transactions`: jobs that leave none open, and mistakes of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands.own_jobs.transactions import transactions
from oncebench.delivery.journal import Identity, open_journal
from oncebench.errors import UserError
from oncebench.jobs.transactions import ONE_STEP
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.registry import SINKS

WITHOUT = [kind.name for kind in SINKS.values() if not kind.transactions]


def refusal(*words: str) -> str:
    """The message of a call that ends with exit code 2."""
    result = CliRunner().invoke(cli, ["transactions", *words])
    if isinstance(result.exception, UserError):
        assert result.exception.exit_code == 2
        return str(result.exception)
    assert result.exit_code == 2, result
    return result.output


@pytest.mark.parametrize("sink", WITHOUT)
@pytest.mark.parametrize("asked", ["list", "commit", "abort"])
def test_a_sink_without_open_transactions_says_why(sink: str, asked: str) -> None:
    said = refusal(asked, "--sink", sink, "--sink-id", "a", "--output", "o")
    assert said == f"sink {sink}: {SINKS[sink].none_open or ONE_STEP}. There is nothing to list, commit or abort."


def test_the_sinks_whose_transactions_outlive_a_job_are_these() -> None:
    sound = {name: sorted(kind.transactions) for name, kind in SINKS.items() if not name.startswith("broken-")}
    assert {name: variants for name, variants in sound.items() if variants} == {
        "kafka": ["idempotent", "two-phase"], "postgres": ["two-phase"],
    }  # fmt: skip


def test_a_variant_without_open_transactions_says_so(tmp_path: Path) -> None:
    open_journal(tmp_path, Identity("a", "postgres", "exactly-once", "idempotent", 2))
    said = refusal("list", "--checkpoint", str(tmp_path), "--output", "o")
    assert "variant idempotent leaves no transaction open when it dies: only exactly-once by two-phase does" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("list",), "Missing option '--output'"),
        (("list", "--output", "o"), "give --checkpoint or, if the checkpoint is gone, both --sink and --sink-id"),
        (("list", "--output", "o", "--sink", "kafka"), "both --sink and --sink-id"),
        (("list", "--output", "o", "--sink", "kafka", "--sink-id", "a", "--checkpoint", "c"), "give --checkpoint or"),
        (
            ("list", "--output", "o", "--checkpoint", "no-such-folder"),
            "no-such-folder/journal/identity.json",
        ),
        (
            (*("list", "--output", "o", "--checkpoint", "no-such-folder"), "--bootstrap-servers", "127.0.0.1:1"),
            "no-such-folder/journal/identity.json",
        ),
        (("list", "--output", "o", "--sink", "kafak", "--sink-id", "a"), "there is no sink 'kafak'"),
        (("list", "--output", "o", "--sink", "kafka", "--sink-id", "a"), "Give it as --bootstrap-servers"),
        (("list", "--output", "o", "--sink", "postgres", "--sink-id", "a"), f"{VARIABLE} is not set"),
        (
            ("list", "--output", "o", "--sink", "postgres", "--sink-id", "a", "--postgres", "password=secret"),
            "password",
        ),
        (("abort", "--output", "o", "--checkpoint", "c", "--accept-loss"), "--accept-loss has no effect here"),
        (("commit", "--output", "o", "--accept-loss"), "No such option"),
    ],
)
def test_a_mistake_is_named_with_exit_code_2(
    words: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert expected in refusal(*words)


@pytest.mark.parametrize("name", sorted(transactions.commands))
def test_every_subcommand_describes_itself_and_its_options(name: str) -> None:
    command = transactions.commands[name]
    assert command.help is not None
    assert all(option.help for option in command.params)  # type: ignore[attr-defined]
    shown = CliRunner().invoke(cli, ["transactions", name, "--help"])
    assert (shown.exit_code, "--sink-id" in shown.output) == (0, name != "commit")


def test_the_list_of_subcommands_cuts_no_text() -> None:
    assert "..." not in CliRunner().invoke(cli, ["transactions", "--help"]).output.partition("Commands:")[2]
