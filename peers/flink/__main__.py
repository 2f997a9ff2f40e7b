"""Runs one cell with Flink as the engine: `python -m peers.flink`."""

from __future__ import annotations

from oncebench.program import run_program
from oncebench.scenario.cell import Cell
from peers.command import Peer, command
from peers.flink.engine import PROGRAM, flink
from peers.flink.settings import GUARANTEES, VARIANTS

FLINK = Peer(
    name="flink",
    title="Flink",
    engine=flink,
    guarantees=tuple(GUARANTEES),
    variants=VARIANTS,
    default_variant="flink-hashmap-1000ms",
    transaction_timeout_ms=Cell.transaction_timeout_ms,
    program=PROGRAM,
)
main = command(FLINK)

if __name__ == "__main__":
    run_program(f"peers.{FLINK.name}", main)
