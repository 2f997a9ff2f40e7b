"""Whether a pipeline kept up with its load, and up to which rate it does.

Promise: pure functions of reports. `why_not` yields every reason why a run did not keep up; no reason: it did. The
conditions are Theodolite's (the slope of the lag) and Karimov's (latency does not rise; "Benchmarking Distributed
Stream Data Processing Systems", ICDE 2018). `limits` uses only the probes of `oncebench sustain`, each search by
itself. What can go wrong: a search that was interrupted leaves a limit that is known from one side only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oncebench.audit.verdict import Verdict
from oncebench.report.comparisons.paired import Setting, differing, fields_text
from oncebench.report.configuration import Variant, variant_of
from oncebench.report.grid import grid
from oncebench.report.measures.metrics import flat_out, generator_late, why_no_speed
from oncebench.report.outcome import is_healthy
from oncebench.report.schema import Report
from oncebench.scenario.order import order_of

# Theodolite's threshold: the lag may grow by this share of the load. The lag rises and falls by a batch with every
# batch. In the 17 s of a probe with batches of 0.9 s its slope has a standard error of 1.5 %. So the slope must exceed
# the threshold by two standard errors. In a simulation this rule rejects 2.5 % of the pipelines that keep up (27 %
# without the standard errors). The rule finds every pipeline that falls behind by 10 %.
LAG_SLOPE, STANDARD_ERRORS = 0.01, 2.0
# This limit is above the difference between the medians of a steady probe's thirds. On a machine with other load, at
# half of the sustainable rate, that difference was 20 % or less in 22 of 25 runs. The lag shows a pipeline that
# falls behind slowly.
LATENCY_RISE = 0.25
# A lag that grows by less, but for long, makes a backlog too: 0.9 % of the load makes 32 s of it in an hour. At this
# rise the backlog is half of the latency. Batches alone that become slower do not double a latency.
BACKLOG_RISE = 1.0
TOO_SHORT = "it was too short to tell"


def fell_behind(report: Report) -> bool:
    """Whether the lag surely grew by LAG_SLOPE of the load, or by less while latency doubled.

    False without a slope. Behind a late generator a latency shows nothing: it counts from the scheduled time.
    """
    steadiness = report.get("steadiness")
    if not steadiness or (slope := steadiness["lag_slope"]) is None:
        return False
    surely = slope - STANDARD_ERRORS * (steadiness.get("lag_slope_error") or 0.0)
    if surely <= 0 or surely >= LAG_SLOPE:
        return surely >= LAG_SLOPE
    return (steadiness["latency_rise"] or 0.0) >= BACKLOG_RISE and generator_late(report) is None


def growth(report: Report) -> str:
    """Describes how much the lag of a pipeline that fell behind grew.

    If it grew by less than LAG_SLOPE, the text has the latency's rise too.
    """
    slope, rise = report["steadiness"]["lag_slope"], report["steadiness"]["latency_rise"]
    assert slope is not None, "call `fell_behind` first"
    lag = f"lag grew by {slope:.1%} of the load"
    return lag if rise is None or slope >= LAG_SLOPE else f"{lag}, and latency rose by {rise:.0%}"


def backlog_in_latency(report: Report) -> bool:
    """Whether a run's latencies include a backlog, because the pipeline fell behind its load.

    False for a run with faults: its lag grows during the outage and shrinks afterwards, at any rate. False for a
    flat-out load too, which is complete before the pipeline starts.
    """
    return is_healthy(report) and not flat_out(report) and fell_behind(report)


def unanswered(report: Report) -> str | None:
    """Why a run does not show whether its rate can be sustained; None if it shows it.

    A pipeline that falls behind a late generator would fall behind a punctual one too. One that keeps up with it shows
    nothing: it got fewer events than the rate says. A run without a verdict shows nothing either, unless its pipeline
    fell behind or did not finish the load.
    """
    if report["verdict"] == Verdict.UNKNOWN and not (fell_behind(report) or _not_finished(report)):
        return f"its verdict is unknown: {report['reasons'][0].split('. ')[0]}"
    late = generator_late(report)
    if late is not None and list(why_no_speed(report)) == [late]:
        return None if fell_behind(report) else late
    return TOO_SHORT if list(why_not(report)) == [TOO_SHORT] else None


def _not_finished(report: Report) -> bool:
    """Whether a run ended with work that the pipeline had not done."""
    # Older reports have no field `not_finished`, but a reason that begins so.
    found = report.get("not_finished") or any(why.startswith("not finished: ") for why in report["reasons"])
    return bool(report["anomalies"].get("PEND") or found)


def why_not(report: Report) -> Iterator[str]:
    """Every reason why a run's rate cannot be sustained."""
    late = generator_late(report)
    yield from (reason for reason in why_no_speed(report) if reason != late or not fell_behind(report))
    steadiness = report["steadiness"]
    slope, rise = steadiness["lag_slope"], steadiness["latency_rise"]
    if fell_behind(report):
        yield f"the {growth(report)}"
    elif slope is None or rise is None:
        yield TOO_SHORT
    elif rise >= LATENCY_RISE:
        yield f"latency rose by {rise:.0%}"


@dataclass(frozen=True)
class Limit:
    """The result of one search for the rate that a variant sustains.

    Attributes:
        setting: what the probes share: everything but their rates.
        variant: guarantee and variant.
        series: the search that the probes belong to; empty where reports have none.
        probes: the number of probes.
        kept, lost: the highest rate (events per second) that was sustained, and the lowest that was not; None: no such
            rate was tried.
        because: why `lost` was not sustained, or why the search ended without such a rate.
    """

    setting: Setting
    variant: Variant
    series: str
    probes: int
    kept: float | None
    lost: float | None
    because: str


def limits(reports: Iterable[Report]) -> list[Limit]:
    """A limit per variant and search.

    A rate is sustained if the first probe at that rate sustained it, or two of three did. It is not sustained if two
    probes did not, as in `oncebench.experiments.rate_search.of_three`. A single failed probe, after which the search
    was interrupted, decides nothing. Neither does a probe that was interrupted, too short, without its rate, or without
    an answer (`unanswered`).
    """
    searches: dict[tuple[str, Setting, Variant], list[Report]] = {}
    for report in reports:
        if report.get("probe") and not report.get("interrupted") and "rate" in report.get("config", {}):
            place = report.get("series", ""), _without_rate(report), variant_of(report)
            searches.setdefault(place, []).append(report)
    found = [_limit(setting, variant, series, probes) for (series, setting, variant), probes in searches.items()]
    return sorted(found, key=lambda each: (each.setting.sink, *order_of(*each.variant)))


def _limit(setting: Setting, variant: Variant, series: str, probes: list[Report]) -> Limit:
    answers: dict[float, list[str]] = {}  # by rate, per probe why it was not sustained; empty text: it was
    without: dict[float, str] = {}  # by rate, why a probe showed nothing
    for report in probes:
        rate = report["config"]["rate"]
        if isinstance(rate, str):
            continue  # a flat-out load has no rate to keep up with
        if not report.get("steadiness"):
            continue
        if why := unanswered(report):
            without[rate] = why
        else:
            answers.setdefault(rate, []).append("; ".join(why_not(report)))
    failed = {rate: [why for why in of_rate if why] for rate, of_rate in answers.items()}
    lost = min((rate for rate, why in failed.items() if len(why) > 1), default=None)
    sustained = (rate for rate, of_rate in answers.items() if not of_rate[0] or of_rate.count("") > 1)
    kept = max((rate for rate in sustained if lost is None or rate < lost), default=None)
    above = [f"at {rate:,.0f}: {why}" for rate, why in without.items() if kept is None or rate > kept]
    because = failed[lost][-1] if lost is not None else above[-1] if above else ""
    return Limit(setting, variant, series, len(probes), kept, lost, because)


def _without_rate(report: Report) -> Setting:
    """The setting of a probe without the fields that a search changes from probe to probe."""
    setting = Setting.of(report)
    rest = {name: value for name, value in setting.config.items() if name not in ("rate", "sessions")}
    return Setting(setting.sink, json.dumps(rest, sort_keys=True))


def markdown(reports: Iterable[Report]) -> str:
    """The limits as a Markdown table, a row per search and variant; empty without probes."""
    found = limits(reports)
    if not found:
        return ""
    fields = differing({each.setting for each in found})
    several = len({(each.setting, each.variant) for each in found}) < len(found)  # a variant was searched repeatedly
    head = ("sink", "guarantee", "variant", *(["setting"] if fields else []), *(["search"] if several else []),
            "keeps up with, events/s", "not with", "because", "probes")  # fmt: skip

    def row(each: Limit) -> tuple[str, ...]:
        where = [fields_text(each.setting, fields) or "-"] if fields else []
        search = [each.series or "-"] if several else []
        return each.setting.sink, *each.variant, *where, *search, *_limit_cells(each)

    return grid([head, *map(row, found)])


def _limit_cells(limit: Limit) -> tuple[str, str, str, str]:
    if limit.kept is None and limit.lost is None:
        return "?", "?", f"no probe gave an answer{limit.because and f' ({limit.because})'}", str(limit.probes)
    kept = "none that was tried" if limit.kept is None else f"{limit.kept:,.0f}"
    open_ended = limit.lost is None and limit.kept is not None
    lost = "-" if limit.lost is None else f"{limit.lost:,.0f}"
    return f"{kept}{' or more' if open_ended else ''}", lost, limit.because or "-", str(limit.probes)
