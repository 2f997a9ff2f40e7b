"""Draws the plots of docs/what_it_costs.md from published reports.

    python -m tools.plots [REPORTS ...]

Takes some ten seconds; needs the extra `docs`. Writes docs/plots/*.svg. REPORTS: default is results/runs/*.jsonl.

Promise: every point is a median over rounds, and every bar its 95 % interval, from the functions that make
the tables. A ratio needs at least six rounds. Processor time is drawn only where the pipeline is idle between batches.
The parts of a batch come from the full comparison. Guarantees differ by marker, not by colour alone.

Failure mode: without healthy rounds of the full comparison the tool writes no file and exits with a message.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

from oncebench.report.comparisons.paired import (
    BASELINE,
    FEWEST_ROUNDS,
    Difference,
    Rounds,
    Setting,
    differing,
    fields_text,
    ratio,
    settings,
    variants_in,
)
from oncebench.report.comparisons.sweep_selection import full_of, in_order, sweeps
from oncebench.report.configuration import Variant
from oncebench.report.measures.metrics import BY_NAME, figure
from oncebench.report.report import read_reports

mpl.use("svg")  # no window
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
RUNS, PLOTS = ROOT / "results" / "runs", ROOT / "docs" / "plots"
# Marker and colour, the same in every panel. The colours are those of Okabe and Ito, for colour-blind readers too.
LOOKS: Mapping[Variant, tuple[str, str]] = {
    ("at-most-once", "claim"): ("v", "#E69F00"),
    ("at-least-once", "acknowledged"): ("s", "#000000"),
    ("at-least-once", "native"): ("D", "#56B4E9"),
    ("exactly-once", "two-phase"): ("o", "#D55E00"),
    ("exactly-once", "idempotent"): ("^", "#0072B2"),
    ("exactly-once", "upsert"): ("P", "#009E73"),
    ("exactly-once", "native"): ("X", "#CC79A7"),
}
# Swept fields with numbers as values, and the names of their axes. Sweeps of the state store and of checkpoint writing
# have no numbers; they are in the tables.
SWEPT: Mapping[str, str] = {
    "trigger_ms": "trigger interval, ms",
    "rate": "events/s",
    "record_bytes": "bytes of a record, at least",
    "open_sessions": "open sessions in the state",
    "partitions": "partitions",
}
# Processor time per million events. It is a cost only where the pipeline is idle between batches.
PRICE = "cpu_s"
# Panels in a row: as many as fit the width of a page.
MOST_IN_A_ROW = 3
# Below the panel, where a legend hides no point.
BELOW: Mapping[str, Any] = {"fontsize": 6, "ncols": 2, "loc": "upper center", "bbox_to_anchor": (0.5, -0.28)}
# The parts of a batch in their order.
PARTS = ("planning", "rest", "state", "prepare", "decide", "commit", "offset_log", "commit_log")
Report = dict[str, Any]


def price_and_latency(found: Sequence[tuple[str, Rounds]]) -> None:
    """A panel for each sink and trigger: the ratios of p99 and processor time to at-least-once."""
    compared = [
        (title, rounds) for title, rounds in found
        if any(
            ratio_of(rounds, PRICE, variant) and ratio_of(rounds, "p99_ms", variant)
            for variant in variants_in(rounds)
            if variant != BASELINE
        )
    ]  # fmt: skip
    if not compared:
        return
    down, across = ceil(len(compared) / MOST_IN_A_ROW), min(len(compared), MOST_IN_A_ROW)
    figure_, panels = plt.subplots(down, across, figsize=(3.2 * across, 3.4 * down), sharey=True, squeeze=False)
    for panel in panels.flat[len(compared) :]:
        panel.set_axis_off()
    for panel, (title, rounds) in zip(panels.flat, compared, strict=False):
        panel.axhline(1, color="0.7", linewidth=0.8)
        panel.axvline(1, color="0.7", linewidth=0.8)
        for variant in variants_in(rounds):
            price, late = (ratio_of(rounds, name, variant) for name in (PRICE, "p99_ms"))
            if price is None or late is None:
                continue
            panel.errorbar(
                price.median, late.median, xerr=bars(price), yerr=bars(late), fmt=LOOKS[variant][0],
                color=LOOKS[variant][1], markersize=5, linewidth=0.8, label=" ".join(variant),
            )  # fmt: skip
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(f"{BY_NAME[PRICE].heading} (x at-least-once)", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(**BELOW)
    for row in panels:
        row[0].set_ylabel("p99 latency (x at-least-once)", fontsize=8)
    write(figure_, "price_and_latency.svg")


def parts_of_a_batch(found: Sequence[tuple[str, Rounds]]) -> None:
    """A bar for each sink and variant: the parts of the mean batch, median over rounds."""
    bars_ = [
        (f"{sink} {' '.join(variant)}", {
            part: median(values) for part in PARTS
            if (values := [value for here in rounds.values() if variant in here
                           and (value := here[variant]["batches"].get("split_ms", {}).get(part)) is not None])
        })
        for sink, rounds in found for variant in variants_in(rounds)
    ]  # fmt: skip
    figure_, panel = plt.subplots(figsize=(8, 0.28 * len(bars_) + 1))
    left = [0.0] * len(bars_)
    for part, hatch in zip(PARTS, ("", "", "//", "..", "xx", "\\\\", "++", "oo"), strict=True):
        widths = [parts.get(part, 0.0) for _, parts in bars_]
        panel.barh(range(len(bars_)), widths, left=left, hatch=hatch, label=part.replace("_", " "), linewidth=0)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    panel.set_yticks(range(len(bars_)), [name for name, _ in bars_], fontsize=7)
    panel.invert_yaxis()
    panel.set_xlabel("ms of a batch", fontsize=8)
    panel.legend(fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1))
    write(figure_, "parts_of_a_batch.svg")


def along(sink: str, field: str, where: str, swept: Sequence[tuple[float, Rounds]], file: str) -> None:
    """The ratios of processor time and p99 to at-least-once at each value of a swept field.

    `where`: the other settings that identify the sweep.
    """
    figure_, panels = plt.subplots(1, 2, figsize=(8, 3))
    for panel, name in zip(panels, (PRICE, "p99_ms"), strict=True):
        panel.axhline(1, color="0.7", linewidth=0.8)
        drawn = (each for each in LOOKS if each != BASELINE and any(each in variants_in(rounds) for _, rounds in swept))
        for variant in drawn:
            compared = [(at, ratio_of(rounds, name, variant)) for at, (_, rounds) in enumerate(swept)]
            points = [(at, each) for at, each in compared if each is not None]
            panel.errorbar(
                [at for at, _ in points], [each.median for _, each in points],
                yerr=[[bars(each)[at][0] for _, each in points] for at in (0, 1)],
                fmt=f"{LOOKS[variant][0]}-", color=LOOKS[variant][1], markersize=5, linewidth=0.8,
                label=" ".join(variant),
            )  # fmt: skip
        panel.set_xticks(range(len(swept)), [f"{value:,g}" for value, _ in swept], fontsize=7)
        panel.set_xlabel(f"{SWEPT[field]} ({', '.join(filter(None, (sink, where)))})", fontsize=8)
        panel.set_ylabel(f"{BY_NAME[name].heading} (x at-least-once)", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(**BELOW)
    write(figure_, file)


def ratio_of(rounds: Rounds, name: str, variant: Variant) -> Difference | None:
    """The ratio to at-least-once; None with too few rounds for an interval."""
    found = ratio(rounds, BY_NAME[name], variant)
    return found if found is not None and found.has_interval else None


def bars(found: Difference) -> list[list[float]]:
    """An interval as matplotlib expects it."""
    return [[found.median - found.low], [found.high - found.median]]


def write(figure_: Any, name: str) -> None:
    """Writes a picture: the same bytes for the same figures."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    figure_.tight_layout()
    figure_.savefig(PLOTS / name, metadata={"Date": None})
    plt.close(figure_)
    print(PLOTS / name)


def main(paths: Iterable[Path]) -> None:
    """Draws every picture that has runs."""
    mpl.rcParams |= {"svg.hashsalt": "oncebench", "svg.fonttype": "none"}  # reproducible bytes, and text as text
    reports = [report for path in paths for report in read_reports(path)]
    found = settings(report for report in reports if figure(report, BY_NAME["batch_ms"]))
    several = {setting: rounds for setting, rounds in found.items() if len(rounds) >= FEWEST_ROUNDS}
    full = [(sink, several[setting]) for sink, setting in sorted(full_of(several).items())]
    if not full:
        sys.exit("no healthy runs of the full comparison in rounds. Run `oncebench compare --profile full` first")
    price_and_latency([
        (f"{setting.sink}, {fields_text(setting, ['trigger_ms'])}", several[setting])
        for setting in in_order(several)
    ])  # fmt: skip
    parts_of_a_batch(full)
    for sink, field, where, name, swept in swept_of(several):
        along(sink, field, where, [(setting.config[field], several[setting]) for setting in swept], name)


def swept_of(found: Mapping[Setting, Rounds]) -> Iterator[tuple[str, str, str, str, list[Setting]]]:
    """Each sweep with numeric values: sink, field, other settings, file name, settings."""
    numeric = [
        (each.sink, each.field, [at for at in each.settings if isinstance(at.config[each.field], int | float)])
        for each in sweeps(found) if each.field in SWEPT
    ]  # fmt: skip
    names: Counter[str] = Counter()
    for sink, field, swept in numeric:
        if len(swept) < 2:
            continue
        others = [
            group[0] for its_sink, its_field, group in numeric if (its_sink, its_field) == (sink, field) and group
        ]
        where = fields_text(swept[0], (name for name in differing(others) if name not in (field, "sessions")))
        name = re.sub(r"[^a-z0-9.-]+", "_", f"{sink} along {field} {where}".lower().strip())
        names[name] += 1
        yield sink, field, where, f"{name}{f'_{names[name]}' if names[name] > 1 else ''}.svg", swept


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(RUNS.glob("*.jsonl")))
