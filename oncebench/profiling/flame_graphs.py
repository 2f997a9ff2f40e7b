"""Writes flame graphs: one page for the JVM, one for the Python processes.

Promise: the lowest frame of each stack is its part, as in the table. So all tasks form one tower, although each task's
thread has another name. Failure mode: the converter fails (`UserError`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from oncebench.downloads.async_profiler import AsyncProfiler
from oncebench.downloads.java import Java
from oncebench.errors import UserError
from oncebench.processes import child as process
from oncebench.profiling.stacks import Stack, collapse

# The converter's class in the jar of async-profiler.
_CONVERTER = "one.convert.Main"
# Its JVM starts in a second on two idle cores.
_LIMIT_S = 60.0


def below_part(stacks: Iterable[Stack], part_of: Callable[[Stack], str]) -> list[Stack]:
    """Returns the stacks with their part as outermost frame, instead of a thread or process."""
    return [
        Stack((part_of(stack), *(frame for frame in stack.frames if not _is_place(frame))), stack.samples)
        for stack in stacks
    ]


def _is_place(frame: str) -> bool:
    """Whether a frame is async-profiler's name of a thread, or py-spy's name of a process."""
    return frame.startswith(("[", "process "))


def write_flame_graph(page: Path, title: str, stacks: Iterable[Stack], profiler: AsyncProfiler, java: Java) -> None:
    """Writes an HTML page that shows the stacks.

    Raises:
        UserError: the converter failed; its output is in a log in the same folder.
    """
    source, log = page.with_suffix(".by-part.collapsed"), page.with_suffix(".log")
    source.write_text(collapse(stacks), "utf-8")
    command: list[str | Path] = [java.executable, "-cp", profiler.jar, _CONVERTER, "--title", title, source, page]
    with process.start("the flame graph's converter", command, log) as converter:
        ended = converter.wait(_LIMIT_S)
    if not ended or converter.returncode != 0 or not page.is_file():
        raise UserError(f"the flame graph {page} could not be written from {source}. See {log}")
    source.unlink()
