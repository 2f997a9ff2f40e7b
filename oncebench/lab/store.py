"""Tries the object stores of checkpoints before a run.

Failures: a store does not answer, refuses the login, has no such bucket, or ignores conditional puts (`UserError`, exit
code 5). Without this check each run would fail by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncebench.delivery.errors import NoStore, RefusedStart
from oncebench.delivery.stores.choose import place_at
from oncebench.delivery.stores.objects import ObjectStore
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell


def prepare_stores(cells: Iterable[Cell]) -> None:
    """Tries each object store that has a checkpoint of these cells.

    Raises:
        UserError: a store cannot be used (exit code 5).
    """
    for checkpoint in sorted({cell.checkpoint for cell in cells if cell.checkpoint}):
        place = place_at(checkpoint, "--checkpoint")
        if isinstance(place, ObjectStore):
            try:
                place.prepare()
            except (NoStore, RefusedStart) as refused:
                raise UserError(str(refused).removesuffix("."), exit_code=ExitCode.ENVIRONMENT) from None
