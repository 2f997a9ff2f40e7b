"""`oncebench acls`: prints the commands that grant a Kafka user the rights for a program.

The program is one of oncebench, such as a job, a load or a reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import click

from oncebench.delivery.contract import GUARANTEES
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.protocols import choose
from oncebench.delivery.topics.check import TOPIC_NAME
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.acls import PREFIXED, Resource, Right, grant
from oncebench.servers.kafka.rights import Job, Load, Observer, OpenTransactions, Program, Requeue, Runs
from oncebench.sinks.registry import find_kind

_KAFKA = "kafka"
_PLACEHOLDER = "HOST:PORT"
# Each command is one line of ASCII, so a name cannot hide a second command from an administrator who pastes the lines.
# Kafka's own names of topics, groups and ids of this project need no more. `*` alone would mean every name.
_FORMS: Mapping[str, tuple[str, str]] = {
    "principal": (r"[A-Za-z]+:[!-)+-~]([ -~]*[!-~])?", "TYPE:NAME in printable ASCII, such as User:orders"),
    "input": (TOPIC_NAME.pattern, "a topic's name: letters, digits, dots, _ and -"),
    "output": (TOPIC_NAME.pattern, "a topic's name: letters, digits, dots, _ and -"),
    "quarantine": (TOPIC_NAME.pattern, "a topic's name: letters, digits, dots, _ and -"),
    "group": (r"[A-Za-z0-9._][A-Za-z0-9._-]*", "letters, digits, dots, _ and -"),
    "sink-id": (r"[A-Za-z0-9._][A-Za-z0-9._-]*", "letters, digits, dots, _ and -"),
    "bootstrap-servers": (r"[!-~]+", "HOST:PORT, or several with commas"),
    "command-config": (r"[ -~]*", "a path in printable ASCII"),
}
Names = Mapping[str, str]


@dataclass(frozen=True)
class _Choice:
    """A value of --for: the options that it needs, those that it also takes, and its program."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]
    program: Callable[[Names], Program]


def _job(names: Names) -> Job:
    guarantee, output = names.get("guarantee", ""), names.get("output", "")
    if bool(output) != bool(guarantee) or ("variant" in names and not guarantee):
        raise UserError(
            "a job into Kafka needs both --output and --guarantee; a job into another sink needs neither",
            exit_code=ExitCode.USAGE,
        )
    if guarantee:
        try:
            choose(find_kind(_KAFKA), guarantee, names.get("variant"))
        except (RefusedStart, UserError) as refused:
            raise UserError(str(refused), exit_code=ExitCode.USAGE) from None
    return Job(guarantee, names["input"], output, names["sink-id"], names.get("quarantine", ""))


PROGRAMS: Mapping[str, _Choice] = {
    "job": _Choice(("input", "sink-id"), ("guarantee", "variant", "output", "quarantine"), _job),
    "load": _Choice((), ("input",), lambda names: Load(names.get("input", ""))),
    "observer": _Choice(("output",), ("sink-id",), lambda names: Observer(names["output"], names.get("sink-id", ""))),
    "transactions": _Choice(
        ("output", "sink-id"), (), lambda names: OpenTransactions(names["output"], names["sink-id"], ends=True)
    ),
    "transactions-list": _Choice(
        ("output", "sink-id"), (), lambda names: OpenTransactions(names["output"], names["sink-id"], ends=False)
    ),
    "requeue": _Choice(
        ("quarantine", "input"),
        ("group",),
        lambda names: Requeue(names["quarantine"], names["input"], names.get("group", "")),
    ),
    "run": _Choice((), (), lambda _: Runs()),
}


@click.command()
@click.option("--principal", required=True, metavar="TYPE:NAME", help="Kafka user of the program, such as User:orders.")
@click.option(
    "--for",
    "program",
    type=click.Choice(list(PROGRAMS)),
    default="job",
    show_default=True,
    help="Program that the user runs. `transactions-list` only lists; `run` also stands for compare, faults, "
    "sustain, batches, plan and profile.",
)
@click.option(
    "--guarantee",
    type=click.Choice(GUARANTEES),
    help="Delivery guarantee of the job; required for a job into Kafka.",
)
@click.option("--variant", help="Protocol that keeps the guarantee. All variants need the same rights.")
@click.option(
    "--input",
    "input_topic",
    metavar="TOPIC",
    help="Topic that the job reads, or that load or requeue writes; required for job and requeue [default for load: a "
    "new topic].",
)
@click.option(
    "--output",
    metavar="TOPIC",
    help="Topic that the job writes; required for a job into Kafka, observer, transactions and transactions-list.",
)
@click.option(
    "--quarantine",
    metavar="TOPIC",
    help="Topic for rejected records, if the job has one; required for requeue, which reads it.",
)
@click.option("--group", metavar="NAME", help="Consumer group of requeue, if you give it one.")
@click.option(
    "--sink-id",
    metavar="ID",
    help="The job's sink_id, with which its groups and transactional ids begin; required for job, transactions and "
    "transactions-list.",
)
@click.option("--bootstrap-servers", metavar="HOST:PORT,..", default=_PLACEHOLDER,
              help="Addresses of your Kafka, for the printed commands.")  # fmt: skip
@click.option("--command-config", metavar="FILE", default="",
              help="File with an administrator's login, for the printed commands. It is not read here.")  # fmt: skip
def acls(
    principal: str,
    program: str,
    guarantee: str | None,
    variant: str | None,
    input_topic: str | None,
    output: str | None,
    quarantine: str | None,
    group: str | None,
    sink_id: str | None,
    bootstrap_servers: str,
    command_config: str,
) -> None:
    """Print the commands that grant a Kafka user exactly the rights that a program needs.

    For a Kafka with authorisation (ACLs). Each line is a command of Kafka's own tool, kafka-acls.sh. This command
    itself changes nothing and connects to nothing: an administrator of the cluster reads the lines and runs them.

    Lines that begin with `# kafka-acls.sh` grant optional rights. The line above each explains what does not work
    without the right. Remove the # to grant it.

    \b
    Examples:
      oncebench acls --principal User:orders --guarantee exactly-once \\
        --input orders --output orders-checked --sink-id orders-1 \\
        --bootstrap-servers broker1:9092
      oncebench acls --for run --principal User:bench \\
        --bootstrap-servers broker1:9092 | sh
    """
    given = {"guarantee": guarantee, "variant": variant, "input": input_topic, "output": output,
             "quarantine": quarantine, "group": group, "sink-id": sink_id}  # fmt: skip
    _check_forms({**given, "principal": principal, "bootstrap-servers": bootstrap_servers,
                  "command-config": command_config})  # fmt: skip
    wanted = _made(program, {name: value for name, value in given.items() if value})
    for line in _lines(wanted, principal, bootstrap_servers, command_config):
        click.echo(line)


def _check_forms(given: Mapping[str, str | None]) -> None:
    for name, value in given.items():
        form, means = _FORMS.get(name, (".*", ""))
        if value is not None and not re.fullmatch(form, value):
            raise UserError(f"--{name} {value!a} is not usable. Give {means}", exit_code=ExitCode.USAGE)


def _made(name: str, given: Names) -> Program:
    choice = PROGRAMS[name]
    missing = [f"--{option}" for option in choice.needs if option not in given]
    unused = [f"--{option}" for option in given if option not in choice.needs + choice.takes]
    if missing:
        raise UserError(f"--for {name} also needs {' and '.join(missing)}", exit_code=ExitCode.USAGE)
    if unused:
        raise UserError(f"--for {name} has no use for {' and '.join(unused)}", exit_code=ExitCode.USAGE)
    return choice.program(given)


def _lines(program: Program, principal: str, servers: str, command_config: str) -> Iterator[str]:
    rights = program.rights()
    yield f"# Rights of {principal} for {program.title}."
    yield "# Run these commands as an administrator of the cluster. Repeating a command changes nothing."
    if servers == _PLACEHOLDER:
        yield f"# Put the address of the cluster in place of {_PLACEHOLDER}, or give --bootstrap-servers."
    if any(right.on.pattern == PREFIXED for right in rights):
        yield "# `prefixed` covers every name that begins with the given one."
    for same in _by_resource(right for right in rights if not right.without):
        yield ""
        yield f"# {'; '.join(right.why for right in same)}"
        yield grant(same, principal, servers, command_config)
    for right in rights:
        if right.without:
            yield ""
            yield f"# {right.why}. Without this right {right.without}."
            yield f"# {grant([right], principal, servers, command_config)}"


def _by_resource(rights: Iterable[Right]) -> Iterable[list[Right]]:
    found: dict[Resource, list[Right]] = {}
    for right in rights:
        found.setdefault(right.on, []).append(right)
    return found.values()
