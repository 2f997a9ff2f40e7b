"""`oncebench list`: what can be combined."""

from __future__ import annotations

import click

from oncebench.delivery.contract import SinkKind, Support
from oncebench.delivery.failpoints import FORM, POINTS
from oncebench.faults.catalogue import NEMESES
from oncebench.scenario.order import order_of, ordered
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.supports import lacking, require_sinks
from oncebench.sinks.registry import SINKS

NOT_THERE = "n/a"
Line = tuple[str, str, str, str]


@click.command("list", short_help="Sinks, guarantees, variants, failpoints, profiles.")
@click.option("--profile", type=click.Choice(sorted(PROFILES)), help="Print the cells of a profile as commands.")
@click.option("--sink", "sinks", multiple=True, help="Of these sinks only; may be given several times.")
def list_cells(profile: str | None, sinks: tuple[str, ...]) -> None:
    """Show the sinks, guarantees, variants and failpoints, or the cells of a profile."""
    if profile:
        for cell in PROFILES[profile].chosen(None, sinks):
            click.echo(cell.reproduce())
        return
    require_sinks(sinks)
    kinds = [kind for kind in SINKS.values() if not sinks or kind.name in sinks]
    sound = [line for kind in kinds for line in _sound(kind)]
    broken = [line for kind in kinds for line in _broken(kind)]
    widths = [max(len(line[at]) for line in (_HEADINGS, *sound, *broken)) for at in range(3)]
    _print([_HEADINGS, *sound], widths)
    for kind in kinds:
        if kind.missing:
            click.echo(f"\n{kind.name} is not run here unless it is named: {kind.missing}")
    if broken:
        click.echo("\nbroken on purpose, to show what the details are for (run by --profile broken):")
        _print(broken, widths)
    click.echo("\nfailpoints, in the order of a batch: " + ", ".join(POINTS))
    click.echo(f"a fault is {FORM}; see docs/faults.md. The nemeses:")
    for nemesis in NEMESES.values():
        click.echo(f"  {nemesis.name + (':SECONDS' if nemesis.timed else ''):20} {nemesis.told}")
    click.echo("profiles of `oncebench compare`: " + ", ".join(PROFILES))


_HEADINGS: Line = ("sink", "guarantee", "variant", "how it is kept")


def _sound(kind: SinkKind) -> list[Line]:
    lines = {
        (s.guarantee, s.variant): (kind.name, s.guarantee, _variant(s), s.how)
        for s in kind.supports
        if s.expected_anomaly is None
    }
    for guarantee, variant, why in lacking(kind):
        lines[guarantee, variant] = (kind.name, guarantee, f"{variant} ({NOT_THERE})" if variant else NOT_THERE, why)
    return [lines[key] for key in sorted(lines, key=lambda key: order_of(*key))]


def _broken(kind: SinkKind) -> list[Line]:
    return [
        (kind.name, support.guarantee, support.variant, f"{support.how}: {support.expected_anomaly}")
        for support in ordered(kind.supports)
        if support.expected_anomaly is not None
    ]


def _print(lines: list[Line], widths: list[int]) -> None:
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, (*widths, 0), strict=True)).rstrip())


def _variant(support: Support) -> str:
    return support.variant + (" (default)" if support.default else "")
