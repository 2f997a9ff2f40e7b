"""Made-up reports of every sink, guarantee and variant, in the form of real ones.

Promise: they fit the schema of a report, are the same for the same numbers, and are not measured: no figure describes a
sink. They hold one of each verdict, and a reason that would be markup if a page took it for that.
"""

from __future__ import annotations

import functools
import json
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from oncebench.audit.python.latency import CURVE
from oncebench.delivery.failpoints import POINTS
from oncebench.report.report import SCHEMA
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix import cells as matrix
from oncebench.scenario.matrix.families import EVERYDAY, RANDOM_KILL
from oncebench.scenario.profiles import broken
from oncebench.scenario.supports import all_supports, expected_codes
from oncebench.sinks.registry import SINKS

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"></script>"
START_US = 1_795_356_900_000_000
RATE = 2000.0
# Milliseconds of a batch, and processor seconds: how far apart the made-up sinks lie.
_SINK = {"kafka": (640, 950), "postgres": (700, 1100), "delta": (1250, 1900), "files-jsonl": (560, 880),
         "files-parquet": (610, 930), "pravega": (820, 1250), "sqlite": (520, 800)}  # fmt: skip
_FACTOR = {"claim": 0.97, "acknowledged": 1.0, "native": 0.99, "two-phase": 1.09, "idempotent": 1.05, "upsert": 1.12}


def reports(rounds: int = 6, seeds: int = 3) -> list[dict[str, Any]]:
    """Healthy rounds of everything, the whole fault matrix, and what is broken on purpose."""
    return [*healthy(rounds), *faulted(seeds), *on_purpose()]


def healthy(rounds: int = 6, **setting: Any) -> Iterator[dict[str, Any]]:
    """Rounds of healthy runs with the same load and setting; a round is slow or fast for all."""
    yield from pickle.loads(_healthy(rounds, **setting))


def faulted(seeds: int = 3) -> Iterator[dict[str, Any]]:
    """The runs of the fault matrix; a few of them are broken, unknown or vacuous."""
    yield from pickle.loads(_faulted(seeds))


# They take a second to make, and dozens of tests want them. Each test gets a copy, which it may change.
@functools.cache
def _healthy(rounds: int, **setting: Any) -> bytes:
    return pickle.dumps(list(_healthy_runs(rounds, **setting)))


@functools.cache
def _faulted(seeds: int) -> bytes:
    return pickle.dumps(list(_faulted_runs(seeds)))


def _healthy_runs(rounds: int, **setting: Any) -> Iterator[dict[str, Any]]:
    for seed in range(1, rounds + 1):
        for sink, support in all_supports():
            cell = Cell(sink, support.guarantee, support.variant, seed=seed, rate=RATE, sessions=200, **setting)
            yield _report(cell, "kept")


def _faulted_runs(seeds: int) -> Iterator[dict[str, Any]]:
    rows = matrix.rows(tuple(SINKS))
    cells = matrix.cells(rows, EVERYDAY, Cell("", "", "", rate=300.0), matrix.seeds_for(seeds))
    for number, cell in enumerate(cells):
        verdict, reasons, codes = "kept", [], []
        if (cell.sink, cell.variant, cell.seed) == ("delta", "native", 1) and "kill-broker" in "".join(cell.faults):
            verdict, reasons, codes = "broken", ["DUP 40 is forbidden under exactly-once"], ["DUP"]
        elif number == 11:
            verdict, reasons = "unknown", [HOSTILE]
        yield _report(cell, verdict, reasons, codes)


def on_purpose() -> Iterator[dict[str, Any]]:
    """Each protocol with a detail left out shows what it is there to show."""
    for cell in broken(Cell("", "", "", rate=RATE)):
        codes = sorted(
            expected_codes({"cell": {"sink": cell.sink, "guarantee": cell.guarantee, "variant": cell.variant}})
        )
        yield _report(cell, "broken", [f"{codes[0]} 120 is forbidden under exactly-once"], codes)


def write(folder: Path, made: list[dict[str, Any]]) -> Path:
    """Writes healthy and other reports into the runs/ of a results folder; returns the folder."""
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for name, faults in (("cost-20260101-000000", False), ("faults-20260101-010000", True)):
        chosen = [each for each in made if bool(each["faults"]) == faults]
        (runs / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in chosen))
    return folder


def _report(
    cell: Cell, verdict: str, reasons: list[str] | None = None, codes: list[str] | None = None
) -> dict[str, Any]:
    drawn = random.Random(f"{cell.title} {cell.seed}{f' {cell.trigger_ms}' if cell.trigger_ms else ''}")
    # The round's share is the same for all of its runs: pairs are nearer to one another than rounds are.
    of_round = random.Random(cell.seed).uniform(0.93, 1.09)
    batch_ms, cpu_s = _SINK.get(cell.sink, (600, 900))
    factor = _FACTOR.get(cell.variant, 1.0) * of_round * drawn.uniform(0.985, 1.015)
    p50 = batch_ms * factor * 1.02
    tail = [p50 * drawn.uniform(0.99, 1.01) * (0.35 + 0.5 * at**1.7 / 20) for at in range(len(CURVE))]
    faults = list(_faults(cell, codes or [], drawn))
    lost, duplicated = (sum(fault[name] for fault in faults) for name in ("lost", "duplicated"))
    seconds = 30 + 14 * len(faults)
    seen = {"visible": 4600, "expected": 4600, "lost": lost, "duplicated": duplicated}
    none = {"detect": None, "restart": None, "first_visible": None, "caught_up": None, "longest_gap": 1900.0,
            "replayed_rows": None}  # fmt: skip
    anomalies = (
        dict.fromkeys(codes or [], 40) | ({"LOSS": lost} if lost else {}) | ({"DUP": duplicated} if duplicated else {})
    )
    return {
        "schema": SCHEMA,
        "run": f"ob-{drawn.randrange(10**6):06d}-{drawn.randrange(16**6):06x}",
        "cell": {"sink": cell.sink, "guarantee": cell.guarantee, "variant": cell.variant, "faults": list(cell.faults),
                 "random_kills": cell.random_kills, "open_sessions": 0},
        "verdict": verdict,
        "broken_by": codes or [],
        "reasons": reasons or [],
        "anomalies": anomalies,
        "sessions": {"acknowledged": 200, "finished": 230},
        "rows": seen,
        "throughput": {"events_per_s": round(1900 / factor, 1)},
        "latency_ms": {"n": 14_000, "p50": tail[4], "p95": tail[7], "p99": tail[9], "p999": tail[11], "max": tail[13]},
        "visibility_gap_ms": {"p50": 30.0 * factor},
        "latency_curve_ms": [round(value, 2) for value in tail],
        "batches": {"trigger_ms": round(batch_ms * factor, 1)},
        "checkpoint": {"share_of_batch": 0.024 * factor, "per_million_events": {"bytes": 7.8e6, "files": 21200.0},
                       "per_batch": {"bytes": 5_000.0, "files": 8.1}},
        "sink_ms": {"prepare": 9.8, "decide": 6.7, "commit": 4.6, "total": 440.0 * factor},
        "resources": {"broker": {"cpu_s": 3.0, "peak_rss_bytes": 3e8}},
        "cpu_s_per_million_events": round(cpu_s * factor, 1),
        "price": {"cpu_s": round(cpu_s * factor, 1), "written_bytes": 2.3e9 * factor, "read_bytes": 0.0},
        "timeline": _timeline(faults, seconds, cell.rate, p50, drawn),
        "recovery": {**(faults[0]["recovery"] if faults and faults[0]["hit"] else none)},
        "deaths": {"asked": len(faults), "unasked": 0, "each_unasked": []},
        "faults": faults,
        "generator": {"lateness_ms": {"p50": 0.6, "p99": 4.3, "max": 10.0}, "sent_share": 1.0},
        "environment": {"python": "3.11.7", "system": "Linux 6.1 x86_64", "cores": 2, "cpu": "a processor",
                        "memory_bytes": 16 * 10**9, "oncebench": "0.1.0", "java": "17.0.15",
                        "versions": {"pyspark": "4.2.0", "confluent-kafka": "2.16.1"}},
        "config": cell.as_json(),
        "seed": cell.seed,
        "series": "compare",
        "interrupted": False,
        "reproduce": cell.reproduce(),
    }  # fmt: skip


def _faults(cell: Cell, codes: list[str], drawn: random.Random) -> Iterator[dict[str, Any]]:
    """Each fault of a cell: some show what the guarantee allows, the last what is forbidden."""
    texts = [*cell.faults, *([RANDOM_KILL] * cell.random_kills)]
    for number, text in enumerate(texts):
        point = text.split(":")[0] if text != RANDOM_KILL else drawn.choice((*POINTS, None))
        lost = 60 if cell.guarantee == "at-most-once" and point in ("after-decision", "mid-write") else 0
        duplicated = 40 if cell.guarantee == "at-least-once" and point in ("after-commit", "mid-commit") else 0
        last = number == len(texts) - 1
        back = drawn.uniform(6500, 9000)
        yield {
            "point": point, "batch": 7 + 2 * number, "hit": not (last and cell.seed == 2 and cell.sink == "pravega"),
            "fault": text, "t_us": START_US + round((12 + 14 * number + drawn.uniform(-2, 2)) * 1e6), "noted": [],
            "lost": lost + (120 if last and "LOSS" in codes else 0),
            "duplicated": duplicated + (120 if last and "DUP" in codes else 0),
            "recovery": {"detect": drawn.uniform(100, 300), "restart": back,
                         "first_visible": back + drawn.uniform(1800, 4800),
                         "caught_up": back + 6000 if last else None, "longest_gap": back + 3000,
                         "replayed_rows": 20 * drawn.randrange(6)},
        }  # fmt: skip


def _timeline(
    faults: list[dict[str, Any]], seconds: int, rate: float | str, p50: float, drawn: random.Random
) -> dict[str, Any]:
    """Rows stop with each fault and come in a rush when the pipeline is back."""
    assert isinstance(rate, float)
    load, lag = seconds - 10, 0
    down = [((each["t_us"] - START_US) / 1e6, each["recovery"]["first_visible"] / 1e3) for each in faults]
    sent, visible, middle, late, left = [], [], [], [], []
    for second in range(seconds):
        sent.append(round(rate * drawn.uniform(0.97, 1.03)) if second < load else 0)
        lag += sent[-1]
        since = next((second - at for at, lasts in down if at <= second < at + lasts), None)
        read = 0 if since is not None else min(lag, round(rate * drawn.uniform(1.0, 2.6)))
        lag -= read
        visible.append(read // 5)
        behind = p50 + 1000 * lag / rate
        middle.append(round(behind, 1) if read else None)
        late.append(round(behind * 1.5, 1) if read else None)
        left.append(lag)
    return {
        "start_us": START_US,
        "step_s": 1,
        "sent": sent,
        "visible": visible,
        "p50_ms": middle,
        "p99_ms": late,
        "lag": left,
    }


def older(report: dict[str, Any]) -> dict[str, Any]:
    """A report of an older version, without curve, timeline, price and setting."""
    gone = ("latency_curve_ms", "timeline", "price", "steadiness", "generator", "environment", "broken_by", "deaths",
            "config", "resources", "interrupted", "visibility_gap_ms")  # fmt: skip
    kept = {name: value for name, value in report.items() if name not in gone}
    return {**kept, "faults": [{name: value for name, value in fault.items() if name not in ("recovery", "t_us")}
                               for fault in report["faults"]]}  # fmt: skip


def thousand() -> list[dict[str, Any]]:
    """A thousand reports, of as many different cells as there are."""
    made = reports(rounds=7, seeds=6)
    assert len(made) >= 1000, len(made)
    return made[:1000]


def only(made: dict[str, Any], **cell: Any) -> dict[str, Any]:
    """A report with some fields of its cell changed."""
    return {**made, "cell": {**made["cell"], **cell}}


def cell_of(sink: str, guarantee: str, variant: str, **changes: Any) -> dict[str, Any]:
    """One healthy report."""
    return _report(replace(Cell(sink, guarantee, variant, rate=RATE), **changes), "kept")
