"""Prints the tables of docs/what_it_costs.md from the published results.

    python -m tools.cost_tables

Takes a second.

Promise: every figure comes from `results/`, by the functions that make the other tables. `~` marks an interval that
includes the value of no difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from oncebench.report.comparisons.paired import BASELINE, Difference, Rounds, Setting, difference, ratio, settings
from oncebench.report.comparisons.sweep_selection import RATE, full_of
from oncebench.report.configuration import Configuration, Variant, configuration_of, configurations_of, place_of
from oncebench.report.grid import grid
from oncebench.report.measures.metrics import BY_NAME
from oncebench.report.outcome import broken_by, is_healthy, outcome_of
from oncebench.report.report import read_reports
from oncebench.report.schema import Report
from oncebench.report.tables.batch_series import series_in
from oncebench.report.tables.batches import whole_table
from oncebench.site.answer.prices import whole
from oncebench.site.costs import absolute

RESULTS = Path(__file__).resolve().parents[1] / "results"
LATENCY = ("sink", "guarantee, variant", "p50", "p50 ratio", "p99", "p99 ratio", "visibility gap")
KILLED = ("sink", "guarantee, variant", "verdict", "rows lost", "rows duplicated")


def flat_out() -> str:
    """Time and CPU of batches in turns: the newest version, all its series together."""
    return whole_table(whole(series_in(RESULTS))[-1].lines)


def latencies(reports: Sequence[Report]) -> str:
    """The latencies of the full comparison: medians, and ratios to at-least-once."""
    return grid([LATENCY, *_latency_rows(settings(reports))], right_from=2)


def killed(reports: Sequence[Report]) -> str:
    """What two kills in one run did, by configuration."""
    return grid([KILLED, *_killed_rows(reports)], right_from=3)


def _latency_rows(found: Mapping[Setting, Rounds]) -> Iterator[tuple[str, ...]]:
    for sink, setting in full_of(found).items():
        rounds = found[setting]
        for variant in dict.fromkeys(variant for here in rounds.values() for variant in here):
            figures = (
                text
                for name in ("p50_ms", "p99_ms")
                for text in (_median(rounds, name, variant), _ratio(rounds, name, variant))
            )
            yield sink, ", ".join(variant), *figures, _more(rounds, variant)


def _killed_rows(reports: Sequence[Report]) -> Iterator[tuple[str, ...]]:
    by_configuration: dict[Configuration, list[Report]] = {}
    on_purpose = configurations_of(reports)
    for report in reports:
        is_of_full = not is_healthy(report) and report["config"].get("rate") == RATE
        if is_of_full and not on_purpose[configuration_of(report)]:
            by_configuration.setdefault(configuration_of(report), []).append(report)
    for sink, *variant in sorted(by_configuration, key=place_of):
        runs = by_configuration[sink, variant[0], variant[1]]
        outcomes = dict.fromkeys(" ".join([outcome_of(each), *broken_by(each)]) for each in runs)
        lost, duplicated = (sum(each["rows"][name] for each in runs) for name in ("lost", "duplicated"))
        yield sink, ", ".join(variant), ", ".join(outcomes), f"{lost:,}", f"{duplicated:,}"


def _median(rounds: Rounds, name: str, variant: Variant) -> str:
    found = absolute(rounds, BY_NAME[name], variant)
    return "-" if found is None else f"{found.median:,.0f} ms"


def _ratio(rounds: Rounds, name: str, variant: Variant) -> str:
    return "" if variant == BASELINE else _text(ratio(rounds, BY_NAME[name], variant), ".2f", 1.0)


def _more(rounds: Rounds, variant: Variant) -> str:
    if variant == BASELINE:
        found = absolute(rounds, BY_NAME["gap_ms"], variant)
        return "-" if found is None else f"{found.median:.1f} ms"
    return _text(difference(rounds, BY_NAME["gap_ms"], variant), "+.1f", 0.0, " ms")


def _text(found: Difference | None, form: str, none: float, unit: str = "") -> str:
    if found is None:
        return "-"
    unclear = "~ " if found.has_interval and not found.shows(none) else ""
    return f"{unclear}{found.median:{form}}{unit} {found.interval(form)}"


if __name__ == "__main__":
    published = read_reports(RESULTS)
    print(flat_out(), latencies(published), killed(published), sep="\n")
