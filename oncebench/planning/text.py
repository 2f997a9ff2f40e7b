"""The text of a plan.

It has the setting, the expected figures, the runs behind the plan, and the error of the model.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from oncebench.planning.choice import BROKER_LIMIT_S, MOST_BUSY, Plan, beyond
from oncebench.planning.held_out import TOLERANCE, Error
from oncebench.planning.model import Costs
from oncebench.report.grid import grid


def plan_text(plan: Plan, costs: Costs, timeout_s: int | None, outage_s: float) -> str:
    """The plan in lines.

    Args:
        timeout_s: the transaction time-out in seconds; None: the variant prepares no transaction.
        outage_s: the outage in seconds that the time-out allows for.
    """
    setting, expected = plan.setting, plan.expected
    users = "the pipeline alone; your servers need their own" if costs.alone else "pipeline and brokers together"
    lines = [
        ("cores", f"{setting.cores} for {users}, {expected.busy:.0%} busy (at most {MOST_BUSY:.0%})"),
        ("partitions", f"{setting.partitions} of input and output"),
        ("trigger", f"{setting.trigger_ms:,} ms" if setting.trigger_ms else "none: a batch starts when the last ends"),
    ]  # fmt: skip
    if timeout_s is not None:
        above = f"; set the broker's transaction.max.timeout.ms to {timeout_s * 1000}" if timeout_s > BROKER_LIMIT_S \
            else ""  # fmt: skip
        lines.append(("time-out", f"{timeout_s * 1000:,} ms per transaction, for an outage of {outage_s:g} s{above}"))
    lines += [
        ("batch", f"{expected.events:,.0f} events in {expected.batch_ms:,.0f} ms"),
        ("latency", f"p50 {expected.p50_ms:,.0f} ms, p99 {expected.p99_ms:,.0f} ms to visibility"),
        ("CPU", f"{expected.cpu_us:,.1f} µs per event, {'pipeline alone' if costs.alone else 'pipeline and servers'}"),
    ]
    if outside := beyond(costs, setting):
        lines.append(("not measured", "; ".join(outside)))
    return "".join(f"{name:<13} {value}\n" for name, value in lines)


def command_text(plan: Plan, sink: str, guarantee: str, variant: str, timeout_s: int | None) -> str:
    """The command that tries the plan on a machine with so many cores."""
    setting = plan.setting
    words = ["oncebench", "run", "--sink", sink, "--guarantee", guarantee, "--variant", variant]
    words += ["--rate", f"{setting.rate:.0f}", "--partitions", str(setting.partitions)]
    words += ["--trigger", str(setting.trigger_ms), "--master", f"local[{setting.cores}]"]
    words += [] if timeout_s is None else ["--transaction-timeout", str(timeout_s * 1000)]
    return shlex.join(words)


def errors_text(errors: Sequence[Error], costs: Costs) -> str:
    """Returns a table of the errors, and sentences below it.

    One sentence is about the misses, and one about the settings without a prediction.
    """
    held_out = {error.setting for error in errors}
    needed = [setting.text for setting in costs.measured if setting not in held_out]
    if not errors:
        return f"No error of the plan: its {len(needed)} settings are the fewest for a fit. More runs would show one.\n"
    rows = [("setting, held out", "figure", "predicted", "measured", "error")]
    rows += [
        (
            error.run_text,
            error.name,
            "does not keep up" if error.predicted is None else _short(error.predicted),
            _short(error.measured),
            ("" if error.share is None else f"{error.share:+.0%}") + (" missed" if error.missed else ""),
        )
        for error in errors
    ]
    misses = sum(error.missed for error in errors)
    runs = len({error.run_text for error in errors})
    within = f"{len(errors) - misses} of {len(errors)} figures of {runs} runs are within {TOLERANCE:.0%}."
    unknown = f"Not predicted, because the plan needs their runs: {'; '.join(needed)}.\n" if needed else ""
    return f"{grid(rows, right_from=2)}\n{within} Each was predicted from the runs of other settings.\n{unknown}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
