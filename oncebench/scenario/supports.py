"""Lists the guarantees and variants of each sink, and the installed sinks.

Failure modes: an unknown sink, guarantee or variant raises `UserError` with exit code 2 and lists the possible ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oncebench.delivery.contract import GUARANTEES, SinkKind, Support
from oncebench.delivery.protocols import PROTOCOLS, choose, exactly_once_two_phase, protocol_of
from oncebench.errors import ExitCode, UserError, did_you_mean
from oncebench.scenario.cell import Cell
from oncebench.scenario.order import ordered
from oncebench.sinks.packages import LEFT_OUT
from oncebench.sinks.registry import SINKS, suite_sinks


def support_of(sink: str, guarantee: str, variant: str | None) -> Support:
    """The support that a sink declares; without `variant` the default one.

    Raises:
        UserError: unknown sink or guarantee, or a variant that the sink does not support (exit code 2).
    """
    require_sinks([sink])
    if guarantee not in GUARANTEES:
        raise UserError(
            f"unknown delivery guarantee {guarantee!r}{did_you_mean(guarantee, GUARANTEES)}; they are: "
            f"{', '.join(GUARANTEES)}",
            exit_code=ExitCode.USAGE,
        )
    supports = SINKS[sink].supports
    for support in supports:
        if support.guarantee == guarantee and (support.variant == variant if variant else support.default):
            return support
    reasons = {(lacked, of_it): why for lacked, of_it, why in lacking(SINKS[sink])}
    why = reasons.get((guarantee, "")) or (reasons.get((guarantee, variant)) if variant else None)
    reason = f" ({why})" if why else ""
    of_guarantee = [s.variant for s in supports if s.guarantee == guarantee]
    variants = ", ".join(of_guarantee)
    if not variants:
        kept = ", ".join(each for each in GUARANTEES if any(s.guarantee == each for s in supports))
        raise UserError(
            f"sink {sink} does not support {guarantee}{reason}; it supports: {kept}", exit_code=ExitCode.USAGE
        )
    if variant is None:
        raise UserError(
            f"sink {sink} has no default for {guarantee}; give --variant: {variants}", exit_code=ExitCode.USAGE
        )
    hint = reason or did_you_mean(variant, of_guarantee)
    raise UserError(
        f"sink {sink} has no variant {variant!r} of {guarantee}{hint}; it has: {variants}", exit_code=ExitCode.USAGE
    )


def find_support(sink: str, guarantee: str, variant: str) -> Support | None:
    """The support of that name, as a report has it; None: the sink does not declare it."""
    supports = SINKS[sink].supports if sink in SINKS else ()
    found = (each for each in supports if (each.guarantee, each.variant) == (guarantee, variant))
    return next(found, None)


def all_supports() -> Iterator[tuple[str, Support]]:
    """Every (sink, support) that is meant to keep its guarantee."""
    for sink, kind in SINKS.items():
        for support in () if kind.certify_only else ordered(kind.supports):
            if support.expected_anomaly is None:
                yield sink, support


def lacking(kind: SinkKind) -> Iterator[tuple[str, str, str]]:
    """(guarantee, variant, reason) of all that a sink lacks; "": every variant."""
    guarantee_of = {variant: guarantee for guarantee, variant in PROTOCOLS}
    for what, why in kind.lacks.items():
        guarantee, _, variant = what.partition("/")
        yield (guarantee, variant, why) if guarantee in GUARANTEES else (guarantee_of[guarantee], guarantee, why)


def is_two_phase(cell: Cell) -> bool:
    """Whether the cell's tasks prepare before the decision: prepared rows can be lost."""
    kind = SINKS[cell.sink]
    return protocol_of(kind, choose(kind, cell.guarantee, cell.variant)) is exactly_once_two_phase


def expected_codes(report: Mapping[str, Any]) -> set[str]:
    """The anomalies that a deliberately broken sink must show; empty for a sound one."""
    cell = report["cell"]
    support = find_support(cell["sink"], cell["guarantee"], cell["variant"])
    return set() if support is None or support.expected_anomaly is None else {support.expected_anomaly}


def installed() -> tuple[str, ...]:
    """The sinks that can run here: they run where the user names none."""
    return tuple(
        name for name, kind in SINKS.items() if not kind.missing and not kind.certify_only and name in suite_sinks()
    )


def require_sinks(sinks: Iterable[str]) -> None:
    """Checks that each of these sinks exists.

    Raises:
        UserError: a sink is unknown, or only `oncebench certify` can run it (exit code 2).
    """
    for sink in sinks:
        if sink not in SINKS:
            raise UserError(_unknown_sink(sink), exit_code=ExitCode.USAGE)
        if SINKS[sink].certify_only:
            raise UserError(
                f"sink {sink} is a function of your own. Test it with `oncebench certify`", exit_code=ExitCode.USAGE
            )


def _unknown_sink(sink: str) -> str:
    broken = [name for name, kind in SINKS.items() if any(support.expected_anomaly for support in kind.supports)]
    sound = [name for name, kind in SINKS.items() if name not in broken and not kind.certify_only]
    meant = did_you_mean(sink, [*sound, *broken])
    left_out = "".join(f". {why.removesuffix('.')}" for why in LEFT_OUT.values())
    return (
        f"unknown sink {sink!r}{meant}; the sinks are: {', '.join(sound)}; broken on purpose: {', '.join(broken)}"
        f"{left_out}"
    )
