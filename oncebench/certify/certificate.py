"""The certificate: one self-contained Markdown page about a sink.

Promise: a pure function of the outcomes. Each sentence is a fact of a run, and each broken guarantee has a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncebench.certify.evidence import command, ended_by_itself, examples, findings, name_of
from oncebench.certify.kept import NONE, STRENGTH, Outcome, proven, strongest
from oncebench.certify.scenarios import chosen

_MEANS = {
    "exactly-once": "A reader is shown each row once, whatever the faults below did.",
    "at-least-once": "No row is lost. After a fault a reader may be shown rows more than once.",
    "at-most-once": "No row is shown twice. After a fault rows may be missing.",
    NONE: "Rows are lost, shown twice, or wrong in ways that no guarantee allows.",
}


def certificate(
    given: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    seed: int,
    made: str,
    prices: Sequence[str] = (),
    beside: str = "",
) -> str:
    """Returns the page.

    Args:
        given: the user's functions, see `oncebench.sinks.black_box.target`.
        made: when and with which versions.
        prices: one line per figure, see `oncebench.certify.price`.
        beside: the function that the prices compare with.
    """
    kept = strongest(outcomes)
    lines = [f"# {name_of(given)} keeps {'no guarantee' if kept == NONE else kept}", "", _MEANS[kept], ""]
    if not proven(outcomes):
        lines += ["Some scenarios have no answer, so this is not proven. They are `not tested` below.", ""]
    left = [
        each.name for each in chosen(bool(given["write"])) if each not in [outcome.scenario for outcome in outcomes]
    ]
    if left and kept == NONE:
        lines += [f"These scenarios were not run, because no guarantee is left: {', '.join(left)}.", ""]
    elif left:
        lines += [f"These scenarios were not run, so this is not proven: {', '.join(left)}.", ""]
    lines += ["| scenario | what happens | " + " | ".join(STRENGTH) + " |", "|---|---|" + "---|" * len(STRENGTH)]
    lines += [_row(outcome) for outcome in outcomes]
    broken = [outcome for outcome in outcomes if outcome.broken(STRENGTH[0])]
    if broken:
        lines += ["", "## Evidence"]
    for outcome in broken:
        lines += ["", f"### {outcome.scenario.name}", "", *_evidence(given, outcome, seed)]
    died = [outcome for outcome in outcomes if ended_by_itself(outcome)]
    if died:
        lines += ["", "## Ends without a fault", "", "A restart helped, unless the scenario is broken:", ""]
        lines += [f"- {each.scenario.name}: {ended_by_itself(each)}" for each in died]
    untested = [outcome for outcome in outcomes if outcome.undecided]
    if untested:
        lines += ["", "## Not tested", "", *(f"- {each.scenario.name}: {each.undecided}" for each in untested)]
    if prices:
        lines += ["", f"## Price beside {beside}", "", "Medians, and the ratio with its 95 % interval:", ""]
        lines += [f"- {price}" for price in prices]
    lines += ["", "## How it was tested", "", *_method(given, outcomes, seed), "", made]
    return "\n".join(lines) + "\n"


def _row(outcome: Outcome) -> str:
    verdicts = [
        "not tested" if outcome.undecided else "broken" if outcome.broken(each) else "kept" for each in STRENGTH
    ]
    return f"| {outcome.scenario.name} | {outcome.scenario.description} | " + " | ".join(verdicts) + " |"


def _evidence(given: Mapping[str, Any], outcome: Outcome, seed: int) -> list[str]:
    rows = outcome.report["rows"]
    lines = [f"Found: {findings(outcome)}. Expected were {rows['expected']} rows, each once.", ""]
    lines += [f"- {line}" for line in examples(outcome)]
    for fault in outcome.report["faults"]:
        if fault["hit"]:
            where = "" if fault["batch"] is None else f" in batch {fault['batch']}"
            lines += [f"- fault: {fault['fault']}{where}"]
    return [*lines, "", "See it again:", "", f"    {command(given, outcome.scenario, seed)}"]


def _method(given: Mapping[str, Any], outcomes: Sequence[Outcome], seed: int) -> list[str]:
    expected = sum(outcome.report["rows"]["expected"] for outcome in outcomes if outcome.report)
    return [
        "A real Spark job read from a real Kafka and wrote to the sink. Real signals killed and stopped the job. "
        f"{given['read']} returned the rows that a reader is shown. Two auditors computed the expected rows from the "
        f"input and compared: {expected} rows in {len(outcomes)} scenarios. A fault acts in one batch of a run, so "
        "races at other moments may stay unseen.",
        "",
        f"    {command(given, None, seed)}",
    ]
