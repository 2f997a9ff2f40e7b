"""Assigns each sampled stack to a part of the pipeline.

The thread decides for a stack of the JVM, and the functions for a stack of a Python worker.

Promise: a stack belongs to exactly one part, and every part is in `JVM_PARTS` or `WORKER_PARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oncebench.profiling.stacks import Stack

PLANNING, TASKS, STATE = "JVM: planning thread", "JVM: tasks", "JVM: state calls"
JIT, GC, SCHEDULER, OTHER_THREADS = "JVM: JIT compilers", "JVM: GC", "JVM: scheduler, listeners", "JVM: other threads"
OPERATOR, PACKING = "Python: operator workers", "Python: packing workers"
WRITER, OTHER_WORKERS = "Python: writer workers", "Python: other work of workers"
DRIVER = "Python: driver"

# The beginnings of thread names, without the bracket of async-profiler.
_THREADS: Mapping[str, tuple[str, ...]] = {
    PLANNING: ("stream execution thread",),
    TASKS: ("Executor task",),
    STATE: ("stateConnectionListenerThread",),
    JIT: ("C1 CompilerThre", "C2 CompilerThre"),  # the kernel cuts names of threads that are not Java's
    GC: ("GC Thread", "G1 ", "VM Thread"),  # the VM thread runs the pauses
    SCHEDULER: (
        "dag-scheduler",
        "task-result-getter",
        "dispatcher-",
        "spark-listener-group",
        "element-tracking-store",
        "Spark Context Cleaner",
        "block-manager",
    ),
}
# The files that identify a part. The first match in this order counts: a writer's rows come from no other part's
# functions.
_FILES: Mapping[str, tuple[str, ...]] = {
    WRITER: ("oncebench/delivery/", "oncebench/sinks/"),
    OPERATOR: ("pipeline/sessions.py", "pipeline/spark/stateful_worker.py", "stateful_processor"),
    PACKING: ("pipeline/packing.py", "pipeline/plain_events.py"),
}
JVM_PARTS = (*_THREADS, OTHER_THREADS)
WORKER_PARTS = (OPERATOR, PACKING, WRITER, OTHER_WORKERS)


def part_of_thread(stack: Stack) -> str:
    """Returns the part of a stack of the JVM, by its thread."""
    thread = stack.frames[0].lstrip("[")
    return next((part for part, names in _THREADS.items() if thread.startswith(names)), OTHER_THREADS)


def part_of_worker(stack: Stack) -> str:
    """Returns the part of a stack of a Python worker, by the files of its functions.

    OTHER_WORKERS is the start of a task, and the serializers outside of these functions.
    """
    for part, files in _FILES.items():
        if any(file in frame for frame in stack.frames for file in files):
            return part
    return OTHER_WORKERS


def samples_by_part(stacks: Iterable[Stack], part_of: Callable[[Stack], str]) -> dict[str, int]:
    """Returns the samples of each part that has any."""
    samples: dict[str, int] = {}
    for stack in stacks:
        part = part_of(stack)
        samples[part] = samples.get(part, 0) + stack.samples
    return samples
