"""Options for a checkpoint in an object store."""

from __future__ import annotations

from typing import Any

import click

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.choose import OBJECTS, place_at
from oncebench.delivery.stores.objects import ObjectStore
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell

checkpoint_option = click.option(
    "--checkpoint", default="", metavar="URI",
    help="Object store for checkpoint and journal, as s3://bucket/folder; each run makes a folder of its own there "
    "[default: a folder in the work dir].",
)  # fmt: skip


class CheckpointType(click.Path):
    """A folder, or an address in an object store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the place of a checkpoint."""
        if not str(value).startswith(OBJECTS):
            return super().convert(value, param, ctx)
        try:
            return place_at(str(value), "--checkpoint")
        except RefusedStart as refused:
            raise UserError(str(refused).removesuffix("."), exit_code=ExitCode.USAGE) from None


def check_checkpoint(cell: Cell) -> None:
    """Checks that a run can have its checkpoint where the cell says.

    Raises:
        UserError: the address is no object store, or a cluster needs a folder (exit code 2).
    """
    if not cell.checkpoint:
        return
    try:
        place = place_at(cell.checkpoint, "--checkpoint")
    except RefusedStart as refused:
        raise UserError(str(refused).removesuffix("."), exit_code=ExitCode.USAGE) from None
    if not isinstance(place, ObjectStore):
        raise UserError(
            f"--checkpoint {cell.checkpoint}: it takes an object store, as s3://bucket/folder. For a folder, leave it "
            "out and give --work-dir",
            exit_code=ExitCode.USAGE,
        )
    if cell.on_cluster:
        raise UserError(
            f"--checkpoint with {cell.spark_text}: this was never run. Take a local master",
            exit_code=ExitCode.USAGE,
        )
