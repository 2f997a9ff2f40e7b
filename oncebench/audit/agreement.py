"""Compares the counts of the two auditors: a pure function of the counts.

Promise: every count of either auditor is compared, including the kinds of each code. A count that only one auditor has
is compared with 0. Each reason names the count and both numbers.

What can go wrong: both auditors make the same mistake. They share no code, which makes this unlikely. They share the
contract, which this module does not check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oncebench.audit.python.audit import Findings


@dataclass(frozen=True)
class Agreement:
    """The result of a comparison.

    Attributes:
        compared: how many counts were compared.
        differ: the counts that differ, by name: (Python auditor, SQL auditor).
        trouble: why there was no comparison; empty if there was one.
    """

    compared: int = 0
    differ: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    trouble: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is unknown; empty if the auditors agree."""
        if self.trouble:
            return (f"the SQL auditor could not count: {self.trouble}",)
        return tuple(
            f"the two auditors disagree on {name}: Python counts {python}, SQL counts {sql}"
            for name, (python, sql) in self.differ.items()
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the field `auditors` of a report."""
        return {
            "agree": not self.reasons,
            "compared": self.compared,
            "differ": {name: {"first": python, "second": sql} for name, (python, sql) in self.differ.items()},
            "trouble": self.trouble,
        }


def compare(python: Mapping[str, int], sql: Mapping[str, int]) -> Agreement:
    """Compares two auditors' counts by name; those that differ come sorted by name."""
    names = sorted(python.keys() | sql.keys())
    both = {name: (python.get(name, 0), sql.get(name, 0)) for name in names}
    return Agreement(len(names), {name: pair for name, pair in both.items() if pair[0] != pair[1]})


def counts_of(findings: Findings) -> dict[str, int]:
    """Returns the Python auditor's counts, under the names that the SQL auditor uses."""
    groups = {
        "rows": findings.rows,
        "sessions": findings.sessions,
        "events": findings.events,
        "invalid": findings.invalid,
        **{code: anomaly.split for code, anomaly in findings.anomalies.items()},
    }
    return {code: anomaly.count for code, anomaly in findings.anomalies.items()} | {
        f"{group}.{name}": int(number) for group, counts in groups.items() for name, number in counts.items()
    }
