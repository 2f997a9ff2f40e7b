"""The options for Spark: its master, and more settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from oncebench.delivery.errors import RefusedStart
from oncebench.errors import ExitCode, UserError
from oncebench.redaction import has_secret, is_secret_setting
from pipeline.spark.cluster.masters import addresses, is_standalone
from pipeline.spark.session import refuse_fixed_settings, refuse_task_retries

F = TypeVar("F", bound=Callable[..., Any])
_COUNT = r"[1-9]\d{0,5}"  # Spark refuses 0, after the servers have started
_MASTER = re.compile(rf"local(\[(\*|{_COUNT})(,\d+)?\])?|local-cluster\[{_COUNT},{_COUNT},{_COUNT}\]|spark://.+")
# Masters whose client reads files that the suite does not pass on (HADOOP_CONF_DIR, a container's image).
_UNTRIED = re.compile(r"yarn|k8s://.+|mesos://.+")
_SETTING = re.compile(r"(?P<name>spark\.[^=\s]+)=(?P<value>.*)", re.DOTALL)
MOST_WORKERS = 8  # each takes a JVM and an executor: 1.5 GB
MASTER_HELP = "Spark master: local[2], or spark://host:7077 for a standalone cluster."


def cluster_option(command: F) -> F:
    """The option `--cluster`."""
    return click.option(
        "--cluster", "workers", type=click.IntRange(0, MOST_WORKERS), default=0, metavar="N", show_default=True,
        help="Start a standalone Spark cluster on this machine for each run: a master, and N workers with one core "
        "each. 0: no cluster.",
    )(command)  # fmt: skip


def spark_options(command: F) -> F:
    """The options `--master`, `--cluster` and `--spark-conf`."""
    for option in (
        click.option("--master", default="local[2]", show_default=True, help=MASTER_HELP),
        cluster_option,
        click.option("--spark-conf", multiple=True, metavar="NAME=VALUE",
                     help="Spark setting, such as spark.executor.memory=2g; repeat for several."),
    )[::-1]:  # fmt: skip
        command = option(command)
    return command


def check_master(master: str) -> None:
    """Checks that the suite can run a pipeline on this Spark master.

    Raises:
        UserError: the suite cannot, or the text is not a master (exit code 2).
    """
    if _UNTRIED.fullmatch(master):
        raise UserError(
            f"--master {master}: the suite runs local masters and standalone clusters (spark://host:7077). Test a job "
            "of your own there instead: docs/at_work.md says how",
            exit_code=ExitCode.USAGE,
        )
    if not _MASTER.fullmatch(master):
        raise UserError(
            f"--master {master!r} is not a Spark master. Give local[2] or spark://host:7077, for example",
            exit_code=ExitCode.USAGE,
        )
    try:
        refuse_task_retries(master)
        if is_standalone(master):
            addresses(master)
    except RefusedStart as refused:
        raise UserError(str(refused), exit_code=ExitCode.USAGE) from None


def check_settings(texts: Sequence[str]) -> None:
    """Checks the texts of `--spark-conf`.

    Raises:
        UserError: a text is not NAME=VALUE, is a secret, or changes a setting that a guarantee needs (exit code 2).
    """
    for text in texts:
        setting = _SETTING.fullmatch(text)
        if setting is None:
            raise UserError(
                f"--spark-conf {text!r} is not of the form NAME=VALUE, such as spark.executor.memory=2g",
                exit_code=ExitCode.USAGE,
            )
        check_setting("--spark-conf", setting["name"], setting["value"])


def check_setting(option: str, name: str, value: str) -> None:
    """Checks a Spark setting of an option.

    Raises:
        UserError: it is a secret, or changes a setting that a guarantee needs (exit code 2).
    """
    if is_secret_setting(name, value) or has_secret(value):
        raise UserError(
            f"{option} {name}: every user of this machine can read a secret in a command line. Leave it out",
            exit_code=ExitCode.USAGE,
        )
    try:
        refuse_fixed_settings({name: value}, option)
    except RefusedStart as refused:
        raise UserError(str(refused), exit_code=ExitCode.USAGE) from None
