"""The options for the workspace of a command that runs cells.

They are its work dir, and the time for a start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from oncebench.commands.shared.options import keep_option, start_timeout_option, work_dir_option
from oncebench.experiments.workspace import Workspace
from oncebench.kafka_access.access import KafkaAccess
from oncebench.report.results import default_work_dir

F = TypeVar("F", bound=Callable[..., Any])
# The names of the options' parameters.
WORKSPACE_PARAMETERS = ("work_dir", "keep", "start_timeout_s")


def workspace_options(command: F, start: Callable[[F], F] = start_timeout_option) -> F:
    """The options, which reach the command as one parameter `workspace: Workspace`.

    They come below the options for Kafka: the workspace contains the user's own Kafka too.

    Args:
        start: the option --start-timeout.
    """

    @wraps(command)
    def with_workspace(
        *arguments: Any,
        work_dir: Path | None,
        keep: bool,
        start_timeout_s: float,
        kafka: KafkaAccess | None = None,
        **options: Any,
    ) -> Any:
        folder = work_dir or default_work_dir(str(click.get_current_context().command.name))
        return command(*arguments, workspace=Workspace(folder, kafka, keep, start_timeout_s), **options)

    decorated: Any = with_workspace
    for option in (work_dir_option, keep_option, start)[::-1]:
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
