"""Whether a fault can act in a run with these brokers, this Spark and this checkpoint.

The functions return why not, as the end of a sentence that begins with the fault; None if it can.
"""

from __future__ import annotations

from typing import Protocol

from oncebench.delivery.failpoints import POINTS, Fault
from oncebench.faults import disk
from oncebench.faults.catalogue import FAULTS, TASK_POINTS, FaultKind
from oncebench.faults.server import KAFKA


class Setup(Protocol):
    """The parts of a cell on which it depends whether a fault can act.

    Attributes:
        brokers: the number of brokers.
        checkpoint: `s3://bucket/folder`; empty: a folder on this machine.
        spark_text: the option that chose Spark: `--master spark://host:7077`.
        on_cluster: whether tasks run in executors of a standalone cluster.
        on_this_machine: whether the suite has started that cluster, so it may kill and stop executors.
    """

    @property
    def brokers(self) -> int: ...
    @property
    def checkpoint(self) -> str: ...
    @property
    def spark_text(self) -> str: ...
    @property
    def on_cluster(self) -> bool: ...
    @property
    def on_this_machine(self) -> bool: ...


def why_not_in_setup(fault: Fault, setup: Setup) -> str | None:
    """Why the fault cannot be injected into a run with this setup; None if it can."""
    action = FAULTS[fault.action]
    return (
        _why_not_on_master(fault, action, setup)
        or _why_not_with_brokers(action, setup.brokers)
        or _why_not_in_object_store(action, setup.checkpoint)
    )


def _why_not_with_brokers(action: FaultKind, brokers: int) -> str | None:
    if action.needs_replicas and brokers == 1:
        return "one broker has no other to take over. Give --brokers 3"
    if brokers > 1 and action.on_link and action.breaks == KAFKA:
        return "its proxy is in front of one broker only. Leave out --brokers"
    if brokers > 1 and action.fills == disk.BROKER:
        return "it fills the disk of a broker that is alone. Leave out --brokers"
    return None


def _why_not_on_master(fault: Fault, action: FaultKind, setup: Setup) -> str | None:
    if not setup.on_cluster:
        return None
    if action.starts_successor:
        return f"with {setup.spark_text} the stopped pipeline keeps all cores, so no successor can run"
    if setup.on_this_machine:
        return None
    if action.on_executors:
        return f"the suite kills only executors that it has started. Give --cluster 2 in place of {setup.spark_text}"
    if fault.point in TASK_POINTS:
        points = ", ".join(point for point in POINTS if point not in TASK_POINTS)
        return (
            f"a task passes {fault.point}, and the suite stops only executors that it has started. Give --cluster 2 in "
            f"place of {setup.spark_text}. Or take one of: {points}"
        )
    return None


def _why_not_in_object_store(action: FaultKind, checkpoint: str) -> str | None:
    if checkpoint and (action.replaces_checkpoint or action.fills == disk.CHECKPOINT):
        return "it changes the folder of the checkpoint, which is in an object store. Leave out --checkpoint"
    return None
