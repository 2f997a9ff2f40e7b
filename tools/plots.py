"""The pictures of docs/what_it_costs.md: `python tools/plots.py [REPORTS...]` writes docs/plots/*.svg (extra `docs`).

Promise: every point is a median over rounds of runs in `results/runs/` (or of the files that are named), every bar its
95 % bootstrap interval, from the same functions as the tables; no ratio is drawn of fewer than five rounds. A price is
drawn where the pipeline rests between batches, the parts of a batch are of the full comparison. Guarantees are told
apart by marker and word, not by colour alone. What can go wrong: there are no healthy runs of the full comparison in
rounds; then no file is written, and it says so.
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
)
from oncebench.report.comparisons.sweep_selection import full_of, in_order, sweeps
from oncebench.report.configuration import Variant
from oncebench.report.measures.metrics import BY_NAME, figure
from oncebench.report.report import read_reports
from oncebench.scenario.order import order_of

mpl.use("svg")  # no window
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
RUNS, PLOTS = HERE.parent / "results" / "runs", HERE / "plots"
# Marker and colour (of Okabe and Ito, told apart by the colour-blind too), the same in every panel.
LOOKS: Mapping[Variant, tuple[str, str]] = {
    ("at-most-once", "claim"): ("v", "#E69F00"),
    ("at-least-once", "acknowledged"): ("s", "#000000"),
    ("at-least-once", "native"): ("D", "#56B4E9"),
    ("exactly-once", "two-phase"): ("o", "#D55E00"),
    ("exactly-once", "idempotent"): ("^", "#0072B2"),
    ("exactly-once", "upsert"): ("P", "#009E73"),
    ("exactly-once", "native"): ("X", "#CC79A7"),
}
# What is swept by numbers, as an axis calls it; the state store and how checkpoints are written are no numbers, and
# have their rows in the tables.
SWEPT: Mapping[str, str] = {
    "trigger_ms": "trigger interval, ms",
    "rate": "events/s",
    "record_bytes": "bytes of a record, at least",
    "open_sessions": "open sessions in the state",
    "partitions": "partitions",
}
# What a million events take, which is a price only where the pipeline rests between batches.
PRICE = "cpu_s"
# So many panels are as wide as a page.
MOST_IN_A_ROW = 3
# Where a legend hides no point.
BELOW: Mapping[str, Any] = {"fontsize": 6, "ncols": 2, "loc": "upper center", "bbox_to_anchor": (0.5, -0.28)}
# What a batch consists of, in the order in which it happens.
PARTS = ("planning", "rest", "state", "prepare", "decide", "commit", "offset_log", "commit_log")
Report = dict[str, Any]


def price_and_latency(found: Sequence[tuple[str, Rounds]]) -> None:
    """A panel for each sink and trigger: p99 beside at-least-once against processor time beside at-least-once."""
    compared = [
        (title, rounds) for title, rounds in found
        if any(beside(rounds, PRICE, way) and beside(rounds, "p99_ms", way) for way in ways(rounds) if way != BASELINE)
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
        for way in ways(rounds):
            price, late = (beside(rounds, name, way) for name in (PRICE, "p99_ms"))
            if price is None or late is None:
                continue
            panel.errorbar(
                price.median, late.median, xerr=bars(price), yerr=bars(late), fmt=LOOKS[way][0],
                color=LOOKS[way][1], markersize=5, linewidth=0.8, label=" ".join(way),
            )  # fmt: skip
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(f"{BY_NAME[PRICE].heading} (x at-least-once)", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(**BELOW)
    for row in panels:
        row[0].set_ylabel("p99 latency (x at-least-once)", fontsize=8)
    write(figure_, "price_and_latency.svg")


def parts_of_a_batch(found: Sequence[tuple[str, Rounds]]) -> None:
    """A bar for each sink, guarantee and variant: the mean batch in its parts, median over the rounds."""
    bars_ = [
        (f"{sink} {' '.join(way)}", {
            part: median(values) for part in PARTS
            if (values := [value for here in rounds.values() if way in here
                           and (value := here[way]["batches"].get("split_ms", {}).get(part)) is not None])
        })
        for sink, rounds in found for way in ways(rounds)
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
    """Price and p99 beside at-least-once, at each value of a swept field; `where`: what else tells the sweep apart."""
    figure_, panels = plt.subplots(1, 2, figsize=(8, 3))
    for panel, name in zip(panels, (PRICE, "p99_ms"), strict=True):
        panel.axhline(1, color="0.7", linewidth=0.8)
        for way in (way for way in LOOKS if way != BASELINE and any(way in ways(rounds) for _, rounds in swept)):
            compared = [(at, beside(rounds, name, way)) for at, (_, rounds) in enumerate(swept)]
            points = [(at, each) for at, each in compared if each is not None]
            panel.errorbar(
                [at for at, _ in points], [each.median for _, each in points],
                yerr=[[bars(each)[at][0] for _, each in points] for at in (0, 1)],
                fmt=f"{LOOKS[way][0]}-", color=LOOKS[way][1], markersize=5, linewidth=0.8, label=" ".join(way),
            )  # fmt: skip
        panel.set_xticks(range(len(swept)), [f"{value:,g}" for value, _ in swept], fontsize=7)
        panel.set_xlabel(f"{SWEPT[field]} ({', '.join(filter(None, (sink, where)))})", fontsize=8)
        panel.set_ylabel(f"{BY_NAME[name].heading} (x at-least-once)", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(**BELOW)
    write(figure_, file)


def ways(rounds: Rounds) -> list[Variant]:
    """Guarantees and variants, in the order of tables."""
    return sorted({way for here in rounds.values() for way in here}, key=lambda way: order_of(*way))


def beside(rounds: Rounds, name: str, way: Variant) -> Difference | None:
    """The ratio to at-least-once; None if it is of too few rounds."""
    found = ratio(rounds, BY_NAME[name], way)
    return found if found is not None and found.has_interval else None


def bars(found: Difference) -> list[list[float]]:
    """What matplotlib takes for an interval."""
    return [[found.median - found.low], [found.high - found.median]]


def write(figure_: Any, name: str) -> None:
    """Writes a picture, the same bytes for the same figures."""
    PLOTS.mkdir(exist_ok=True)
    figure_.tight_layout()
    figure_.savefig(PLOTS / name, metadata={"Date": None})
    plt.close(figure_)
    print(PLOTS / name)


def main(paths: Iterable[Path]) -> None:
    """Draws what there are runs for."""
    mpl.rcParams |= {"svg.hashsalt": "oncebench", "svg.fonttype": "none"}  # the same bytes again, and text as text
    reports = [report for path in paths for report in read_reports(path)]
    found = settings(report for report in reports if figure(report, BY_NAME["batch_ms"]))
    several = {setting: rounds for setting, rounds in found.items() if len(rounds) >= FEWEST_ROUNDS}
    full = [(sink, several[setting]) for sink, setting in sorted(full_of(several).items())]
    if not full:
        sys.exit("no healthy runs of the full comparison in rounds; make some with `oncebench compare --profile full`")
    price_and_latency([
        (f"{setting.sink}, {fields_text(setting, ['trigger_ms'])}", several[setting])
        for setting in in_order(several)
    ])  # fmt: skip
    parts_of_a_batch(full)
    for sink, field, where, name, swept in swept_of(several):
        along(sink, field, where, [(setting.config[field], several[setting]) for setting in swept], name)


def swept_of(found: Mapping[Setting, Rounds]) -> Iterator[tuple[str, str, str, str, list[Setting]]]:
    """(sink, field, what else tells it apart, file name, settings) of each sweep by numbers."""
    numeric = [
        (each.sink, each.field, [at for at in each.settings if isinstance(at.config[each.field], int | float)])
        for each in sweeps(found) if each.field in SWEPT
    ]  # fmt: skip
    names: Counter[str] = Counter()
    for sink, field, swept in numeric:
        if len(swept) < 2:
            continue
        others = [group[0] for of, by, group in numeric if (of, by) == (sink, field) and group]
        where = fields_text(swept[0], (name for name in differing(others) if name not in (field, "sessions")))
        name = re.sub(r"[^a-z0-9.-]+", "_", f"{sink} along {field} {where}".lower().strip())
        names[name] += 1
        yield sink, field, where, f"{name}{f'_{names[name]}' if names[name] > 1 else ''}.svg", swept


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(RUNS.glob("*.jsonl")))
