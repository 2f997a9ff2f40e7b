"""The cells of several scenario files, as one series.

Promise: all cells run on the same servers, because one table compares them.

Failures: a file is refused, two files name different servers, or a guarantee has another seed than the one that it is
compared with (`UserError`, exit code 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import click

from oncebench.commands.run import asked_cell, run
from oncebench.commands.scenario_files.argument import over_file, words_over_files
from oncebench.commands.scenario_files.lines import refused_by_file
from oncebench.commands.shared.kafka import access_of
from oncebench.commands.shared.postgres import given_postgres
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.scenario.cell import Cell


@dataclass(frozen=True)
class Scenarios:
    """The cells and servers of scenario files.

    Attributes:
        cells: one per file, in the order of the files.
        kafka: the user's own Kafka; None: the suite starts one.
        start_timeout_s: the longest of the files.
    """

    cells: list[Cell]
    kafka: KafkaAccess | None
    start_timeout_s: float


@contextmanager
def open_scenarios(context: click.Context, paths: Sequence[Path]) -> Iterator[Scenarios]:
    """Reads the files. Until the end, the environment names the PostgreSQL of the files.

    Args:
        context: of the command; its options override those of every file.

    Raises:
        UserError: a file is refused, or the files do not fit together (exit code 2).
    """
    for option in ("profile", "sinks"):
        if over_file(context, option):
            raise UserError(
                f"--{option.removesuffix('s')} chooses cells, and the scenario files name theirs. Leave out one of "
                "both",
                exit_code=ExitCode.USAGE,
            )
    words = words_over_files(context, run, {"postgres": given_postgres(context) or ""})
    found: list[tuple[Cell, KafkaAccess | None, str | None, float]] = []
    with ExitStack() as opened:
        for path in paths:
            file = run.make_context("run", [str(path), *words])
            opened.callback(file.close)
            given = file.params
            with refused_by_file(file):
                kafka = access_of(given["bootstrap_servers"], given["kafka_conf"], given["kafka_set"])
            found.append((asked_cell(file, kafka), kafka, given_postgres(file), given["start_timeout_s"]))
        for path, (_, kafka, postgres, _) in zip(paths, found, strict=True):
            if (kafka, postgres) != found[0][1:3]:
                raise UserError(
                    f"{paths[0]} and {path} name different servers, and one table compares runs on the same. Name the "
                    "servers on the command line, which overrides the files",
                    exit_code=ExitCode.USAGE,
                )
        _refuse_other_seeds(paths, [cell for cell, *_ in found])
        yield Scenarios([cell for cell, *_ in found], found[0][1], max(start_s for *_, start_s in found))


def _refuse_other_seeds(paths: Sequence[Path], cells: Sequence[Cell]) -> None:
    """Refuses cells that differ in guarantee or variant and in their seeds only.

    Two guarantees are compared by rounds, and the runs of a round have the same seed.
    """
    for (path, cell), (other_path, other) in combinations(zip(paths, cells, strict=True), 2):
        same_seed = replace(other, seed=cell.seed)
        load_and_sink = replace(same_seed, guarantee=cell.guarantee, variant=cell.variant)
        if cell.seed != other.seed and same_seed != cell and load_and_sink == cell:
            raise UserError(
                f"{path} has seed {cell.seed} and {other_path} has seed {other.seed}. Guarantees are compared by runs "
                "of the same seed. Give --seed, which overrides the files",
                exit_code=ExitCode.USAGE,
            )
