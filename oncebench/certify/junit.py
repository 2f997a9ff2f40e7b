"""Writes JUnit XML: one test case per scenario, with its command and examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from oncebench.certify.evidence import command, examples, findings, name_of
from oncebench.certify.kept import Outcome

# What an XML 1.0 document cannot contain (https://www.w3.org/TR/xml/#charsets). A user's row or error may have it.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(given: Mapping[str, Any], outcomes: Sequence[Outcome], guarantee: str, seed: int) -> str:
    """Returns the outcomes as JUnit XML.

    Args:
        given: the user's functions, see `oncebench.sinks.black_box.target`.
        guarantee: a scenario that breaks this guarantee is a failure. A scenario without an answer is skipped.
        seed: the seed of the runs, for the commands.
    """
    failed = sum(bool(each.broken(guarantee)) for each in outcomes)
    skipped = sum(bool(each.undecided) for each in outcomes)
    suite = ElementTree.Element("testsuite", name=f"oncebench certify {guarantee}", tests=str(len(outcomes)),
                                failures=str(failed), skipped=str(skipped))  # fmt: skip
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=name_of(given), name=outcome.scenario.name)
        if outcome.undecided:
            ElementTree.SubElement(case, "skipped", message=_shown(outcome.undecided))
        elif outcome.broken(guarantee):
            failure = ElementTree.SubElement(case, "failure", message=_shown(findings(outcome, guarantee)))
            failure.text = _shown("\n".join(examples(outcome, guarantee)))
        ElementTree.SubElement(case, "system-out").text = command(given, outcome.scenario, seed)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _shown(text: str) -> str:
    """Returns the text with an escape like `\\x1b` in place of each character that XML cannot contain."""
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)
