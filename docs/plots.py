"""The pictures of docs/what_it_costs.md: `python docs/plots.py [REPORTS...]` writes docs/plots/*.svg (extra `docs`).

Promise: every point is a median over rounds of runs in `results/runs/` (or of the files that are named), every bar its
95 % bootstrap interval, from the same functions as the tables; nothing is drawn of fewer than five rounds. Guarantees
are told apart by marker and word, not by colour alone. What can go wrong: there are no healthy runs in rounds; then no
file is written, and it says so.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

from oncebench.reports.metrics import BY_NAME, figure
from oncebench.reports.paired import BASELINE, FEWEST_ROUNDS, Difference, Rounds, Setting, Way, ratio, settings
from oncebench.reports.report import read_reports
from oncebench.scenario import order_of

mpl.use("svg")  # no window
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
RUNS, PLOTS = HERE.parent / "results" / "runs", HERE / "plots"
# Marker and colour (of Okabe and Ito, told apart by the colour-blind too), the same in every panel.
LOOKS: Mapping[Way, tuple[str, str]] = {
    ("at-most-once", "claim"): ("v", "#E69F00"),
    ("at-least-once", "acknowledged"): ("s", "#000000"),
    ("at-least-once", "native"): ("D", "#56B4E9"),
    ("exactly-once", "two-phase"): ("o", "#D55E00"),
    ("exactly-once", "idempotent"): ("^", "#0072B2"),
    ("exactly-once", "upsert"): ("P", "#009E73"),
    ("exactly-once", "native"): ("X", "#CC79A7"),
}
# What is swept by numbers, as an axis calls it.
SWEPT: Mapping[str, str] = {
    "trigger_ms": "trigger interval, ms",
    "rate": "events/s",
    "record_bytes": "bytes of a record, at least",
    "open_sessions": "open sessions in the state",
    "partitions": "partitions",
}
# Where a legend hides no point.
BELOW: Mapping[str, Any] = {"fontsize": 6, "ncols": 2, "loc": "upper center", "bbox_to_anchor": (0.5, -0.28)}
# What a batch consists of, in the order in which it happens.
PARTS = ("planning", "rest", "state", "prepare", "decide", "commit", "offset_log", "commit_log")
Report = dict[str, Any]


def price_and_latency(found: Sequence[tuple[str, Rounds]]) -> None:
    """A panel for each sink: p99 beside at-least-once against processor time beside at-least-once."""
    compared = [(sink, rounds) for sink, rounds in found if BASELINE in ways(rounds)]
    figure_, panels = plt.subplots(1, len(compared), figsize=(3.2 * len(compared), 3.4), sharey=True, squeeze=False)
    for panel, (sink, rounds) in zip(panels[0], compared, strict=True):
        panel.axhline(1, color="0.7", linewidth=0.8)
        panel.axvline(1, color="0.7", linewidth=0.8)
        for way in ways(rounds):
            price, late = (beside(rounds, name, way) for name in ("cpu_s", "p99_ms"))
            if price is None or late is None:
                continue
            panel.errorbar(
                price.median, late.median, xerr=bars(price), yerr=bars(late), fmt=LOOKS[way][0],
                color=LOOKS[way][1], markersize=5, linewidth=0.8, label=" ".join(way),
            )  # fmt: skip
        panel.set_title(sink, fontsize=9)
        panel.set_xlabel("CPU s per million events\n(x at-least-once)", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(**BELOW)
    panels[0][0].set_ylabel("p99 latency (x at-least-once)", fontsize=8)
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


def along(sink: str, field: str, swept: Sequence[tuple[Any, Rounds]]) -> None:
    """Price and p99 beside at-least-once, at each value of a swept field."""
    figure_, panels = plt.subplots(1, 2, figsize=(8, 3))
    for panel, name in zip(panels, ("cpu_s", "p99_ms"), strict=True):
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
        panel.set_xlabel(f"{SWEPT[field]} ({sink})", fontsize=8)
        panel.set_ylabel(f"{BY_NAME[name].heading} (x at-least-once)", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.legend(**BELOW)
    write(figure_, f"{sink}_along_{field}.svg")


def ways(rounds: Rounds) -> list[Way]:
    """Guarantees and variants, in the order of tables."""
    return sorted({way for here in rounds.values() for way in here}, key=lambda way: order_of(*way))


def beside(rounds: Rounds, name: str, way: Way) -> Difference | None:
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
    found = settings(report for report in reports if figure(report, BY_NAME["cpu_s"]))
    several = [(setting, rounds) for setting, rounds in found.items() if len(rounds) >= FEWEST_ROUNDS]
    if not several:
        sys.exit("no healthy runs in rounds; make some with `oncebench compare --profile full`")
    # Of each sink the setting with the most ways is that of the full comparison; the others belong to sweeps.
    most: dict[str, tuple[Setting, Rounds]] = {}
    for setting, rounds in sorted(several, key=lambda each: len(ways(each[1]))):
        most[setting.sink] = setting, rounds
    full = [(sink, rounds) for sink, (_, rounds) in sorted(most.items())]
    price_and_latency(full)
    parts_of_a_batch(full)
    for field, sink in product(SWEPT, most):
        for group in swept_by(field, [setting for setting, _ in several if setting.sink == sink]):
            along(sink, field, [(setting.config[field], found[setting]) for setting in group])


def swept_by(field: str, settings_: Sequence[Setting]) -> list[list[Setting]]:
    """The settings that differ in this field and in nothing else, several together, by its value."""
    groups: dict[str, list[Setting]] = {}
    for setting in sorted(settings_, key=lambda each: float(each.config.get(field, 0))):
        rest = {name: value for name, value in setting.config.items() if name not in (field, "sessions")}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(setting)
    return [group for group in groups.values() if len(group) > 1]


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(RUNS.glob("*.jsonl")))
