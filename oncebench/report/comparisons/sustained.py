"""Whether a pipeline kept up with its load, and where its limit lies: pure functions of reports.

Promise: `why_not` names every reason, none means that it did. The conditions are Theodolite's (the lag's slope) and
Karimov's (latency does not rise; "Benchmarking Distributed Stream Data Processing Systems", ICDE 2018). `limits` are
told by the probes of `oncebench sustain` alone, each search by itself. What can go wrong: a search that was cut short
leaves a limit that is known from one side only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oncebench.report.comparisons.paired import Setting, Way, differing, in_fields
from oncebench.report.measures.metrics import Report, why_no_speed
from oncebench.report.tables.table import aligned
from oncebench.scenario.order import order_of

# Theodolite's threshold: the lag may grow by so much of the load. A lag goes up by a batch's worth and down again with
# every batch, so over 17 s of a probe with batches of 0.9 s its slope is known to 1.5 % only: it must be above this for
# sure (in standard errors). Simulated: of pipelines that keep up 2.5 % are taken for ones that don't (27 % without), of
# those that fall behind by 10 % none is missed.
LAG_SLOPE, FOR_SURE = 0.01, 2.0
# Above what the medians of a steady probe's thirds differ by: in 25 runs at half of what can be kept up with by 20 % or
# less but for three, on a machine that others slowed (results/runs/costs-kafka.jsonl). A pipeline that falls behind
# slowly shows it in the lag.
LATENCY_RISE = 0.25
TOO_SHORT = "it was too short to tell"


def fell_behind(report: Report) -> bool:
    """Whether the lag grew by more than LAG_SLOPE of the load for sure; False where a report does not tell."""
    seen = report.get("steadiness") or {}
    slope, error = seen.get("lag_slope"), seen.get("lag_slope_error") or 0.0
    return slope is not None and slope - FOR_SURE * error >= LAG_SLOPE


def why_not(report: Report) -> Iterator[str]:
    """Reasons why a run's rate is none that can be kept up."""
    yield from why_no_speed(report)
    seen = report["steadiness"]
    slope, rise = seen["lag_slope"], seen["latency_rise"]
    if fell_behind(report):
        yield f"the lag grew by {slope:.1%} of the load"
    elif slope is None or rise is None:
        yield TOO_SHORT
    elif rise >= LATENCY_RISE:
        yield f"latency rose by {rise:.0%}"


@dataclass(frozen=True)
class Limit:
    """What one search found of one way.

    Attributes:
        setting: what its probes have in common: all but their rates.
        series: the search that they belong to; empty where reports do not tell.
        tries: how many probes there were.
        kept, lost: the highest rate (events per second) that was kept up with, and the lowest that was not; None:
            there is none among those that were tried.
        because: why `lost` was not kept up with.
    """

    setting: Setting
    way: Way
    series: str
    tries: int
    kept: float | None
    lost: float | None
    because: str


def limits(reports: Iterable[Report]) -> list[Limit]:
    """A limit for each way that each search tried. A rate is kept up with if the first answer says so, or two of three
    do; it is not if two say no, as in `oncebench.experiments.rate_search.of_three`: a single no, after which the
    search was cut, is
    no answer. A probe that was interrupted, or too short to tell, says nothing."""
    searches: dict[tuple[str, Setting, Way], list[Report]] = {}
    for report in reports:
        if report.get("probe") and not report.get("interrupted") and "rate" in report.get("config", {}):
            cell = report["cell"]
            place = report.get("series", ""), _but_its_rate(report), (cell["guarantee"], cell["variant"])
            searches.setdefault(place, []).append(report)
    found = [_limit(setting, way, series, probes) for (series, setting, way), probes in searches.items()]
    return sorted(found, key=lambda each: (each.setting.sink, *order_of(*each.way)))


def _limit(setting: Setting, way: Way, series: str, probes: list[Report]) -> Limit:
    answers: dict[float, list[str]] = {}
    for report in probes:
        if report.get("steadiness") and (reasons := list(why_not(report))) != [TOO_SHORT]:
            answers.setdefault(report["config"]["rate"], []).append("; ".join(reasons))
    no = {rate: [why for why in said if why] for rate, said in answers.items()}
    lost = min((rate for rate, why in no.items() if len(why) > 1), default=None)
    yes = (rate for rate, said in answers.items() if not said[0] or said.count("") > 1)
    kept = max((rate for rate in yes if lost is None or rate < lost), default=None)
    return Limit(setting, way, series, len(probes), kept, lost, "" if lost is None else no[lost][-1])


def _but_its_rate(report: Report) -> Setting:
    """The setting of a probe without what a search changes from one to the next."""
    setting = Setting.of(report)
    rest = {name: value for name, value in setting.config.items() if name not in ("rate", "sessions")}
    return Setting(setting.sink, json.dumps(rest, sort_keys=True))


def markdown(reports: Iterable[Report]) -> str:
    """The limits as a Markdown table, a row for each search of each way; empty without probes."""
    found = limits(reports)
    if not found:
        return ""
    apart = differing({each.setting for each in found})
    again = len({(each.setting, each.way) for each in found}) < len(found)  # one way was searched several times
    head = ("sink", "guarantee", "variant", *(["setting"] if apart else []), *(["search"] if again else []),
            "keeps up with, events/s", "not with", "because", "probes")  # fmt: skip

    def row(each: Limit) -> tuple[str, ...]:
        where = [in_fields(each.setting, apart) or "-"] if apart else []
        return each.setting.sink, *each.way, *where, *([each.series or "-"] if again else []), *_told(each)

    return aligned([head, *map(row, found)])


def _told(limit: Limit) -> tuple[str, str, str, str]:
    if limit.kept is None and limit.lost is None:
        return "?", "?", "no probe told anything", str(limit.tries)
    kept = "none that was tried" if limit.kept is None else f"{limit.kept:,.0f}"
    open_ended = limit.lost is None and limit.kept is not None
    lost = "-" if limit.lost is None else f"{limit.lost:,.0f}"
    return f"{kept}{' or more' if open_ended else ''}", lost, limit.because or "-", str(limit.tries)
