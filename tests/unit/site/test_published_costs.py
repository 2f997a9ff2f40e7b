"""The costs that README and docs/what_it_costs.md name are those of the stored reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

from oncebench import bench
from oncebench.report.comparisons.paired import BASELINE, Difference, Rounds, Setting, difference, ratio, settings
from oncebench.report.comparisons.repeatability import noise_floor, repeated_ratios
from oncebench.report.measures.metrics import BY_NAME
from oncebench.report.report import read_reports
from oncebench.report.schema import Report
from oncebench.site.costs import absolute
from tests import ROOT

README, COSTS = ROOT / "README.md", ROOT / "docs" / "what_it_costs.md"
RUNS = ROOT / "results" / "runs"
TWO_PHASE, IDEMPOTENT = ("exactly-once", "two-phase"), ("exactly-once", "idempotent")
CLAIM, NATIVE = ("at-most-once", "claim"), ("at-least-once", "native")
STEADY = {"rate": 1000.0, "trigger_ms": 0, "checkpoint_writing": "tuned"}
FAMILY_26, FAMILY_25 = "AMD EPYC (family 26", "AMD EPYC (family 25"
SMALL_BATCHES = {"rate": "max", "max_events_per_batch": 5000}
WARM = {"rate": "max", "max_events_per_batch": 100_000}
IDLE = {"trigger_ms": 2000}
PRICES = ("cpu_s", "s_per_million", "written_mb")
# Sink and variant of exactly-once in the table "Sink by sink", and whether its row has a visibility gap.
SINKS = (
    ("kafka", "idempotent"), ("kafka", "two-phase"), ("postgres", "two-phase"), ("postgres", "idempotent"),
    ("postgres", "upsert"), ("files-jsonl", "two-phase"), ("files-parquet", "two-phase"), ("delta", "idempotent"),
    ("delta", "native"),
)  # fmt: skip
FLAT_OUT = (
    ("kafka", "two-phase"), ("kafka", "idempotent"), ("postgres", "two-phase"), ("postgres", "idempotent"),
    ("postgres", "upsert"), ("files-jsonl", "two-phase"), ("files-parquet", "two-phase"), ("delta", "idempotent"),
    ("delta", "native"),
)  # fmt: skip
RESTING = (("kafka", "two-phase"), ("postgres", "two-phase"), ("files-jsonl", "two-phase"),
           ("files-parquet", "two-phase"))  # fmt: skip


@cache
def reports(name: str = "") -> list[Report]:
    return read_reports(RUNS / f"{name}.jsonl" if name else RUNS.parent)


@cache
def found() -> Mapping[Setting, Rounds]:
    return settings(reports())


def of(sink: str, machine: str = "", **config: object) -> Rounds:
    """The rounds of the only setting of a sink with these fields."""
    (rounds,) = (
        rounds
        for setting, rounds in found().items()
        if setting.sink == sink
        and setting.config.get("machine", "").startswith(machine)
        and all(setting.config.get(name) == value for name, value in config.items())
    )
    return rounds


def value(rounds: Rounds, name: str, variant: tuple[str, str] = BASELINE) -> float:
    found = absolute(rounds, BY_NAME[name], variant)
    assert found is not None
    return found.median


def times(rounds: Rounds, name: str, variant: tuple[str, str]) -> str:
    """A ratio as the pages have it: `~ 1.02 (0.97 to 1.16)`."""
    found = ratio(rounds, BY_NAME[name], variant)
    assert found is not None
    unclear = found.has_interval and not found.shows(1.0)
    return f"{'~ ' if unclear else ''}{found.median:.2f} {found.interval('.2f')}"


def more(rounds: Rounds, name: str, variant: tuple[str, str]) -> Difference:
    found = difference(rounds, BY_NAME[name], variant)
    assert found is not None
    return found


def end(rounds: Rounds, name: str, variant: tuple[str, str]) -> str:
    """The upper end of a ratio that shows no difference."""
    found = ratio(rounds, BY_NAME[name], variant)
    assert found is not None and found.has_interval and not found.shows(1.0)
    return f"{found.high:.2f}"


def gap(rounds: Rounds, variant: tuple[str, str]) -> str:
    found = more(rounds, "gap_ms", variant)
    return f"{'' if found.shows(0.0) else '~ '}{found.median:+.1f} ms ({found.low:.1f} to {found.high:.1f})"


def rows() -> Iterator[str]:
    """Beginnings of the rows of docs/what_it_costs.md."""
    for sink, name in SINKS:
        rounds, variant = of(sink, FAMILY_26, **STEADY), ("exactly-once", name)
        cells = (times(rounds, metric, variant) for metric in ("p50_ms", "p99_ms"))
        waits = "" if sink == "postgres" else gap(rounds, variant)
        yield f"| {sink} | {name} | {value(rounds, 'p50_ms'):,.0f} ms | {' | '.join(cells)} | {waits}".rstrip() + " |"
    columns = ("p50_ms", "p99_ms", "gap_ms", "batch_ms", "checkpoint_kb_batch", "checkpoint_files_batch")
    rounds = of("kafka", FAMILY_26, **STEADY)
    for variant in (CLAIM, NATIVE, IDEMPOTENT, TWO_PHASE):
        yield f"| {' | '.join(variant)} | {' | '.join(times(rounds, metric, variant) for metric in columns)} |"
    for sinks, load in ((FLAT_OUT, SMALL_BATCHES), (RESTING, IDLE)):
        for sink, name in sinks:
            rounds, variant = of(sink, **load), ("exactly-once", name)
            names = PRICES if load is SMALL_BATCHES else ("cpu_s", "written_mb")
            cells = (times(rounds, metric, variant) for metric in names)
            yield f"| {sink} | {name} | {value(rounds, 'cpu_s'):,.0f} | {' | '.join(cells)} |"
    rounds = of("kafka", **WARM)
    for variant in (BASELINE, NATIVE, IDEMPOTENT, TWO_PHASE):
        per_s = median(here[variant]["throughput"]["events_per_s"] for here in rounds.values())
        cost = [value(rounds, metric) for metric in ("s_per_million", "cpu_s")]  # s per million are µs per event
        cells = (
            f"{base:.0f} µs" if variant == BASELINE else times(rounds, metric, variant)
            for base, metric in zip(cost, ("s_per_million", "cpu_s"), strict=True)
        )
        yield f"| {', '.join(variant)} | {per_s:,.0f} | {' | '.join(cells)} |"


def test_every_row_of_the_page_of_costs_has_the_stored_figures() -> None:
    page = COSTS.read_text()
    assert [row for row in rows() if row not in page] == []


@pytest.mark.parametrize("variant", [CLAIM, NATIVE, IDEMPOTENT, TWO_PHASE])
def test_every_row_of_readme_has_the_stored_ratios(variant: tuple[str, str]) -> None:
    rounds = of("kafka", FAMILY_26, **STEADY)
    cells = " | ".join(times(rounds, name, variant) for name in ("p50_ms", "p99_ms", "gap_ms"))
    (row,) = (line for line in README.read_text().splitlines() if line.startswith(f"| {', '.join(variant)}"))
    assert row.endswith(f" s | {cells} |")


def words(place: Path, begin: str, end: str) -> str:
    """A part of a page, without line breaks."""
    return " ".join(place.read_text().partition(begin)[2].partition(end)[0].split())


def test_every_sink_has_both_medians_and_the_upper_end_of_what_is_unclear() -> None:
    latency = words(COSTS, "- **Latency:", "- **CPU:")
    for name, sink, variant in (
        ("Kafka", "kafka", TWO_PHASE), ("PostgreSQL", "postgres", TWO_PHASE), ("JSON lines", "files-jsonl", TWO_PHASE),
        ("Parquet", "files-parquet", TWO_PHASE),
    ):  # fmt: skip
        rounds = of(sink, FAMILY_26, **STEADY)
        medians = [f"{value(rounds, 'p50_ms', each):.0f}" for each in (BASELINE, variant)]
        text = " ms, and ".join(medians) + " ms under `two-phase`" if sink == "kafka" else " and ".join(medians) + " ms"
        ends = f"(p50 {end(rounds, 'p50_ms', variant)}, p99 {end(rounds, 'p99_ms', variant)})"
        assert f"{name}: {text} {ends}" in latency
        assert end(rounds, "p50_ms", variant) in words(README, "- **What it costs.**", "- **Why")
    rounds = of("kafka", FAMILY_26, **STEADY)
    ends = ", ".join(f"{name[:3]} {end(rounds, name, IDEMPOTENT)}" for name in ("p50_ms", "p99_ms"))
    assert f"{value(rounds, 'p50_ms', IDEMPOTENT):.0f} ms under `idempotent` ({ends})" in latency


def named() -> Iterator[str]:
    """Figures in the text of docs/what_it_costs.md."""
    kafka, slow = of("kafka", FAMILY_26, **STEADY), of("kafka", FAMILY_25, **STEADY)
    for rounds, variant in ((kafka, TWO_PHASE), (kafka, IDEMPOTENT), (slow, TWO_PHASE), (slow, IDEMPOTENT)):
        found = more(rounds, "gap_ms", variant)
        yield f"{found.median:.1f} ms ({found.low:.1f} to {found.high:.1f})"
    for name, where in (("p50_ms", "at the median"), ("p99_ms", "at the p99")):
        yield f"x {times(slow, name, TWO_PHASE)} {where}"
        found = more(slow, name, TWO_PHASE)
        yield f"{found.median:.0f} ms {where} ({found.low:.0f} to {found.high:.0f})"
    delta = of("delta", FAMILY_26, **STEADY)
    latency = " and ".join(f"{value(delta, 'p50_ms', each):,.0f}" for each in (BASELINE, IDEMPOTENT))
    yield f"{latency} ms, a clear difference (p50 {times(delta, 'p50_ms', IDEMPOTENT).partition('(')[2][:-1]})"
    ends = [end(of(sink, **SMALL_BATCHES), "cpu_s", TWO_PHASE) for sink in ("kafka", "postgres", "files-jsonl")]
    yield f"up to {ends[0]} times into Kafka (`two-phase`), {ends[1]} into PostgreSQL and {ends[2]} into JSON lines"
    saved = [f"{1 - 1 / float(each):.0%}".replace("%", " %") for each in ends]
    yield f"end at {saved[0]} (Kafka), {saved[1]} (PostgreSQL) and {saved[2]} (JSON lines)"
    warm = of("kafka", **WARM)
    yield f"{end(warm, 's_per_million', IDEMPOTENT)} times the time (`idempotent`)"
    yield f"{end(warm, 'cpu_s', IDEMPOTENT)} times the CPU"
    spans = [
        (min(each), max(each)) for each in map(_cpu_of_rounds, ("kafka", "postgres", "files-jsonl", "files-parquet"))
    ]
    names = ("Kafka", "PostgreSQL", "JSON lines", "Parquet")
    yield from (f"{low:.2f} to {high:.2f} into {name}" for (low, high), name in zip(spans, names, strict=True))

    for name, sink in (("JSON lines", "files-jsonl"), ("Parquet", "files-parquet")):
        yield f"{value(of(sink, FAMILY_26, **STEADY), 'gap_ms', NATIVE):.0f} ms ({name})"
    floors = [noise_floor(kafka, BY_NAME[name], BASELINE) for name in ("p50_ms", "p99_ms")]
    low, high = min(each.low for each in floors if each), max(each.high for each in floors if each)
    yield f"The median step lies between {low:.2f} and {high:.2f} (p50 and p99;"
    parts = [here[TWO_PHASE]["batches"]["split_ms"] for here in kafka.values() if TWO_PHASE in here]
    yield f"| reading, shuffling, computing | {median(each['rest'] for each in parts):.0f} |"
    yield f"| planning | {median(each['planning'] for each in parts):.0f} |"


def _cpu_of_rounds(sink: str) -> tuple[float, ...]:
    found = ratio(of(sink, **IDLE), BY_NAME["cpu_s"], TWO_PHASE)
    assert found is not None
    return found.rounds


def test_the_text_of_the_page_of_costs_has_the_stored_figures() -> None:
    page = " ".join(COSTS.read_text().split())
    assert [text for text in named() if text not in page] == []


def test_the_page_of_costs_counts_the_ratios_that_repeat_in_a_later_series() -> None:
    series = [reports(f"costs-kafka{number}") for number in ("", "-2", "-3", "-4")]
    pairs = list(combinations(series, 2))
    later = [each for first, second in pairs for each in repeated_ratios(second, first)]
    reverse = [each for first, second in pairs for each in repeated_ratios(first, second)]
    page = " ".join(COSTS.read_text().split())
    repeat, differ, agree = (sum(getattr(each, name) for each in later) for name in ("repeats", "differs", "agrees"))
    assert f"six pairs and {len(later)} ratios" in page
    assert f"| the ratio repeats | {repeat} ({repeat / len(later):.0%}".replace("%", " %") in page
    assert f"| the exact test finds a difference | {differ} " in page
    assert f"lies in the other's interval | {agree} " in page
    assert f"the other way round {sum(each.repeats for each in reverse)} repeat" in page


def test_the_page_of_measuring_has_the_load_of_the_benchmarks() -> None:
    page = " ".join((ROOT / "docs" / "measuring.md").read_text().split())
    assert f"three times healthy at {bench.RATE:,.0f} events/s" in page
    assert f"the {bench.SESSIONS} sessions of a run" in page
