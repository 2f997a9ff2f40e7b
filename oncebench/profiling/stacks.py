"""Reads and writes collapsed stacks, the text form of async-profiler's and py-spy's samples.

A line is `outermost;..;innermost COUNT`. async-profiler's first frame is the thread, in brackets. py-spy's first frame
is the process if py-spy follows subprocesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stack:
    """One stack, from the outermost frame inwards, and the number of its samples."""

    frames: tuple[str, ...]
    samples: int


@dataclass(frozen=True)
class Samples:
    """The sampled stacks of a pipeline's processes."""

    jvm: Sequence[Stack]
    driver: Sequence[Stack]
    workers: Sequence[Stack]

    def __str__(self) -> str:
        counts = {"JVM": self.jvm, "Python driver": self.driver, "Python workers": self.workers}
        return ", ".join(f"{name} {sum(stack.samples for stack in stacks):,}" for name, stacks in counts.items())


def parse(text: str) -> Iterator[Stack]:
    """Reads collapsed stacks; skips lines that have no count."""
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if frames and count.isdigit():
            yield Stack(tuple(frames.split(";")), int(count))


def collapse(stacks: Iterable[Stack]) -> str:
    """Writes stacks in the form that `parse` reads; equal stacks become one line."""
    samples: dict[str, int] = {}
    for stack in stacks:
        frames = ";".join(stack.frames)
        samples[frames] = samples.get(frames, 0) + stack.samples
    return "".join(f"{frames} {count}\n" for frames, count in samples.items())
