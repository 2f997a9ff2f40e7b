"""Whether a fault can act in a run with these brokers, this Spark and this checkpoint.

Each function returns why not, as the end of a sentence that begins with the fault; None if it can.
"""

from __future__ import annotations

from oncebench.delivery.failpoints import POINTS, Fault
from oncebench.faults import disk
from oncebench.faults.catalogue import FAULTS, TASK_POINTS
from oncebench.faults.server import KAFKA


def why_not_with_brokers(fault: Fault, brokers: int) -> str | None:
    """Why the fault cannot be injected into a run with this number of brokers; None if it can."""
    action = FAULTS[fault.action]
    if action.needs_replicas and brokers == 1:
        return "one broker has no other to take over. Give --brokers 3"
    if brokers > 1 and action.on_link and action.breaks == KAFKA:
        return "its proxy is in front of one broker only. Leave out --brokers"
    if brokers > 1 and action.fills == disk.BROKER:
        return "it fills the disk of a broker that is alone. Leave out --brokers"
    return None


def why_not_on_master(fault: Fault, spark: str, cluster: bool, ours: bool) -> str | None:
    """Why the fault cannot be injected into a run on this Spark; None if it can.

    Args:
        spark: the option that chose Spark: `--master spark://host:7077`.
        cluster: whether tasks run in executors of a standalone cluster.
        ours: whether the suite has started that cluster, so it may kill and stop executors.
    """
    if not cluster:
        return None
    action = FAULTS[fault.action]
    if action.starts_successor:
        return f"with {spark} the stopped pipeline keeps all cores, so no successor can run"
    if ours:
        return None
    if action.on_executors:
        return f"the suite kills only executors that it has started. Give --cluster 2 in place of {spark}"
    if fault.point in TASK_POINTS:
        points = ", ".join(point for point in POINTS if point not in TASK_POINTS)
        return (
            f"a task passes {fault.point}, and the suite stops only executors that it has started. Give --cluster 2 in "
            f"place of {spark}. Or take one of: {points}"
        )
    return None


def why_not_in_object_store(fault: Fault, checkpoint: str) -> str | None:
    """Why the fault cannot be injected into a run with its checkpoint there; None if it can.

    Args:
        checkpoint: `s3://bucket/folder`; empty: a folder on this machine.
    """
    action = FAULTS[fault.action]
    if checkpoint and (action.replaces_checkpoint or action.fills == disk.CHECKPOINT):
        return "it changes the folder of the checkpoint, which is in an object store. Leave out --checkpoint"
    return None
