"""Whether two auditors counted the same: a pure function of their counts, whoever made them.

Promise: every count of either is compared, each code's kinds too, and one that only the other has is compared with 0;
the sentences name the count and what each auditor says. What can go wrong: both are wrong in the same way; they share
no code to make that unlikely, and the contract, which they do share, is not judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oncebench.audit.python.audit import Findings


@dataclass(frozen=True)
class Agreement:
    """What became of the comparison: `compared` counts, those that differ as (first, second), or why there is none."""

    compared: int = 0
    differ: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    trouble: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run can't be told; none if the auditors agree."""
        if self.trouble:
            return (f"the second auditor could not count: {self.trouble}",)
        return tuple(
            f"the two auditors disagree on {name}: {first} by the first, {second} by the second"
            for name, (first, second) in self.differ.items()
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in a report."""
        return {
            "agree": not self.reasons,
            "compared": self.compared,
            "differ": {name: {"first": one, "second": other} for name, (one, other) in self.differ.items()},
            "trouble": self.trouble,
        }


def compare(first: Mapping[str, int], second: Mapping[str, int]) -> Agreement:
    """The counts by name that differ, sorted by name."""
    names = sorted(first.keys() | second.keys())
    both = {name: (first.get(name, 0), second.get(name, 0)) for name in names}
    return Agreement(len(names), {name: pair for name, pair in both.items() if pair[0] != pair[1]})


def counts_of(findings: Findings) -> dict[str, int]:
    """What the first auditor counted, by the names of the second."""
    parts = {
        "rows": findings.rows,
        "sessions": findings.sessions,
        "events": findings.events,
        "invalid": findings.invalid,
        **{code: anomaly.split for code, anomaly in findings.anomalies.items()},
    }
    return {code: anomaly.count for code, anomaly in findings.anomalies.items()} | {
        f"{part}.{word}": int(number) for part, words in parts.items() for word, number in words.items()
    }
