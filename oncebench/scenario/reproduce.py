"""The command that runs a cell again, on the same servers of the user.

It starts the program of the cell's engine.

Promise: a report and the message of a failed run have the same command. It has no secret, and no address of a server
that the suite starts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from oncebench.scenario.cell import Cell


@dataclass(frozen=True)
class Program:
    """A command line that runs one cell.

    Attributes:
        words: how it begins; the options of a cell follow.
        unused: the fields of a cell for which it has no option.
        defaults: the fields whose default differs from a cell's.
    """

    words: tuple[str, ...] = ("oncebench", "run")
    unused: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


RUN = Program()


def reproduce(cell: Cell, program: Program, kafka: Mapping[str, Any] | None, theirs: Mapping[str, str]) -> str:
    """Returns the command.

    Args:
        kafka: the user's own Kafka as `KafkaAccess.as_json` describes it; None: the suite starts one.
        theirs: the addresses of the user's other servers, by the variable that names them.
    """
    given = kafka or {}
    options = [
        (option, given[name])
        for option, name in (("--bootstrap-servers", "bootstrap_servers"), ("--kafka-conf", "kafka_conf"))
        if given.get(name)
    ]
    options += [("--kafka-set", f"{name}={value}") for name, value in given.get("kafka", {}).items()]
    servers = [f"{option} {shlex.quote(str(value))}" for option, value in options]
    variables = [f"{variable}={shlex.quote(where)}" for variable, where in theirs.items()]
    default = Cell(cell.sink, cell.guarantee, cell.variant)
    used = replace(cell, **{name: getattr(default, name) for name in program.unused})
    return " ".join([*variables, used.reproduce(program.words, program.defaults), *servers])
