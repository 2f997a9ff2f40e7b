"""`oncebench acls` prints commands that grant exactly the rights of the data.

The table in the docs has the same rights.
"""

from __future__ import annotations

import shlex

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands.own_jobs.acls import PROGRAMS
from oncebench.delivery.contract import GUARANTEES
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.acls import PREFIXED, Right
from oncebench.servers.kafka.rights import Job, Load, OpenTransactions, Runs
from tests import ROOT

PLAN = "kafka-acls.sh --bootstrap-server b1:9092 --add --allow-principal User:orders"
JOB = ("--principal", "User:orders", "--input", "orders", "--sink-id", "o-1")
INTO_KAFKA = (*JOB, "--output", "checked", "--guarantee")
NAMES = {"input": "orders", "output": "checked", "quarantine": "bad", "sink-id": "o-1", "guarantee": "exactly-once",
         "group": "again"}  # fmt: skip
EVERY, REFUSED = "every guarantee", "the start is refused"


def printed(*words: str) -> list[str]:
    result = CliRunner().invoke(cli, ["acls", *words])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_a_job_under_exactly_once_gets_one_command_for_each_resource() -> None:
    lines = printed(*INTO_KAFKA, "exactly-once", "--variant", "two-phase", "--bootstrap-servers", "b1:9092")
    assert [line for line in lines if line.startswith("kafka")] == [
        f"{PLAN} --operation Read --topic orders",
        f"{PLAN} --operation Write --operation Read --topic checked",
        f"{PLAN} --operation Read --group o-1. --resource-pattern-type prefixed",
        f"{PLAN} --operation Write --transactional-id o-1.txn. --resource-pattern-type prefixed",
    ]
    assert [line for line in lines if line.startswith("# kafka")] == [
        f"# {PLAN} --operation DescribeConfigs --topic checked",
        f"# {PLAN} --operation DescribeConfigs --cluster",
        f"# {PLAN} --operation Read --topic __consumer_offsets",
        f"# {PLAN} --operation Alter --cluster",
    ]
    assert lines[0] == "# Rights of User:orders for a job under exactly-once into Kafka with sink_id o-1."


def test_a_principal_with_blanks_and_a_login_stay_one_word_each() -> None:
    lines = printed("--for", "load", "--principal", "User:CN=a b", "--input", "t", "--command-config", "my admin.conf")
    (command,) = (shlex.split(line) for line in lines if line.startswith("kafka"))
    assert command[command.index("--allow-principal") + 1] == "User:CN=a b"
    assert command[command.index("--command-config") + 1] == "my admin.conf"


def test_requeue_reads_the_quarantine_and_writes_the_other_topic_in_its_group() -> None:
    asked = ("--for", "requeue", "--principal", "User:orders", "--quarantine", "bad", "--input", "orders")
    for more, group in (((), "bad.requeue"), (("--group", "again"), "again")):
        granted = [line.split("User:orders ")[1] for line in printed(*asked, *more) if line.startswith("kafka")]
        assert granted == [
            "--operation Read --operation Write --topic bad", f"--operation Read --group {group}",
            f"--operation Write --transactional-id {group}", "--operation Write --topic orders",
        ]  # fmt: skip


def test_a_job_into_another_sink_only_reads_its_input() -> None:
    lines = printed(*JOB)
    assert [line.split("User:orders ")[1] for line in lines if line.startswith("kafka")] == [
        "--operation Read --topic orders"
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_right_of_a_program_is_printed_and_those_it_can_do_without_are_commented_out(name: str) -> None:
    choice = PROGRAMS[name]
    names = {option: NAMES[option] for option in choice.needs + choice.takes if option in NAMES}
    options = [word for option, value in names.items() for word in (f"--{option}", value)]
    lines = printed("--for", name, "--principal", "User:orders", *options)
    for right in choice.program(names).rights():
        begins = "# kafka-acls.sh" if right.without else "kafka-acls.sh"
        on = " ".join(right.on.options)
        (line,) = (
            line for line in lines
            if f"--operation {right.operation} " in line and line.endswith(f" {on}") and line.startswith(begins)
        )  # fmt: skip
        assert right.why in lines[lines.index(line) - 1]
        assert right.without in lines[lines.index(line) - 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--for", "job"), "--for job also needs --input and --sink-id"),
        (("--for", "load", "--output", "t"), "--for load has no use for --output"),
        (("--input", "i", "--sink-id", "s", "--guarantee", "exactly-once"), "needs both --output and --guarantee"),
        (("--input", "i", "--sink-id", "s", "--output", "o"), "needs both --output and --guarantee"),
        (("--input", "i", "--sink-id", "s", "--variant", "two-phase"), "needs both --output and --guarantee"),
        (("--for", "nothing"), "'nothing' is not one of"),
    ],
)
def test_a_mistake_is_named(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(cli, ["acls", "--principal", "User:a", *words])
    said = str(result.exception) if isinstance(result.exception, UserError) else result.output
    assert message in said
    assert getattr(result.exception, "exit_code", result.exit_code) == 2


def test_a_variant_of_another_guarantee_is_refused() -> None:
    result = CliRunner().invoke(cli, ["acls", *INTO_KAFKA, "at-least-once", "--variant", "two-phase"])
    assert isinstance(result.exception, UserError)
    assert result.exception.exit_code == ExitCode.USAGE


def test_one_sink_id_gets_no_right_on_another_that_begins_alike() -> None:
    for program in (Job("exactly-once", "i", "o", "s-1"), OpenTransactions("o", "s-1", ends=True)):
        prefixes = [right.on.name for right in program.rights() if right.on.pattern == PREFIXED]
        assert prefixes
        assert not [prefix for prefix in prefixes if "s-10.marker.0".startswith(prefix)]


def test_a_load_and_a_run_get_no_right_on_topics_of_others() -> None:
    on = {right.on.name for program in (Load(), Runs()) for right in program.rights() if not right.without}
    assert on == {"ob-", "ob-load-"}


def table() -> list[str]:
    """The lines of the table in docs/sinks.md."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for guarantee in GUARANTEES:
        for right in Job(guarantee, "INPUT", "OUTPUT", "SINK_ID", "QUARANTINE").rights():
            lines.setdefault((right.operation, _on(right), right.without or REFUSED), []).append(guarantee)
    first = sorted(lines.items(), key=lambda line: line[0][2] != REFUSED)
    return [
        "| right | on | for | without it |",
        "|---|---|---|---|",
        *(
            f"| {operation} | {on} | {EVERY if len(whom) == len(GUARANTEES) else ', '.join(whom)} | {without} |"
            for (operation, on, without), whom in first
        ),
    ]


def _on(right: Right) -> str:
    prefixed = right.on.pattern == PREFIXED
    kind = right.on.kind.replace("-", " ") + ("s that begin with" if prefixed else "")
    return "the cluster" if kind == "cluster" else f"{kind} `{right.on.name}`"


def test_the_table_in_the_docs_has_the_rights_of_each_guarantee() -> None:
    assert "\n".join(table()) in (ROOT / "docs" / "sinks.md").read_text(), "\n".join(table())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--principal", "User:a\ntouch stolen #"),
        ("--principal", "User:*"),
        ("--principal", "orders"),
        ("--input", "*"),
        ("--input", "t\u00f3pic"),
        ("--sink-id", "s\nreboot"),
        ("--sink-id", "-s"),
        ("--bootstrap-servers", "b1:9092\nreboot"),
        ("--bootstrap-servers", ""),
        ("--command-config", "admin\x1b.conf"),
    ],
)
def test_a_name_never_becomes_a_second_command_or_every_name(option: str, value: str) -> None:
    result = CliRunner().invoke(cli, ["acls", *JOB, option, value])
    assert isinstance(result.exception, UserError)
    assert (result.exception.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert f"{option} {value!a} is not usable" in str(result.exception)
