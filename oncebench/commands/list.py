"""`oncebench list`: prints sinks, guarantees, variants, faults and profiles."""

from __future__ import annotations

import click

from oncebench.delivery.contract import SinkKind, Support
from oncebench.delivery.failpoints import FORM, POINTS
from oncebench.faults.catalogue import FAULTS
from oncebench.scenario.order import order_of, ordered
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.supports import lacking, require_sinks
from oncebench.sinks.registry import PACKAGES, SINKS

NOT_SUPPORTED = "n/a"
Line = tuple[str, str, str, str]


@click.command("list")
@click.option(
    "--profile", type=click.Choice(sorted(PROFILES)), help="Print the cells of this profile as commands instead."
)
@click.option("--sink", "sinks", multiple=True, help="List only this sink; repeat for several [default: every sink].")
def list_cells(profile: str | None, sinks: tuple[str, ...]) -> None:
    """List sinks, guarantees, variants, failpoints, faults and profiles.

    A cell is one run: sink, guarantee, variant, faults, load and settings. A profile is a named set of cells. A round
    is one pass over the same cells. A sweep is the same cells at several values of one setting. A chain is several
    faults in one run, each in a batch of its own.

    \b
    Examples:
      oncebench list --sink postgres
      oncebench list --profile quick
    """
    if profile:
        for cell in PROFILES[profile].select_cells(None, sinks):
            click.echo(cell.reproduce())
        return
    require_sinks(sinks)
    kinds = [kind for kind in SINKS.values() if not kind.certify_only and (not sinks or kind.name in sinks)]
    sound = [line for kind in kinds for line in _sound(kind)]
    broken = [line for kind in kinds for line in _broken(kind)]
    widths = [max(len(line[at]) for line in (_HEADINGS, *sound, *broken)) for at in range(3)]
    _print([_HEADINGS, *sound], widths)
    for kind in kinds:
        if kind.missing:
            click.echo(f"\n{kind.name} runs only with --sink {kind.name}: {kind.missing}")
    for kind in kinds:
        if kind.name in PACKAGES:
            click.echo(f"\n{kind.name} is a sink of the package {PACKAGES[kind.name]}")
    if broken:
        click.echo(
            "\nbroken on purpose: one protocol detail is missing, so an anomaly shows (--profile broken runs them):"
        )
        _print(broken, widths)
    click.echo("\nfailpoints, in the order of a batch: " + ", ".join(POINTS))
    click.echo(f"\na fault is {FORM}; see docs/faults.md. Actions:")
    actions = {each.name + (":SECONDS" if each.timed else ""): each.description for each in FAULTS.values()}
    width = max(map(len, actions))
    for name, description in actions.items():
        click.echo(f"  {name.ljust(width)}  {description}")
    click.echo("\nprofiles of `oncebench compare`: " + ", ".join(PROFILES))


_HEADINGS: Line = ("sink", "guarantee", "variant", "how it is kept")


def _sound(kind: SinkKind) -> list[Line]:
    lines = {
        (s.guarantee, s.variant): (kind.name, s.guarantee, _variant(s), s.how)
        for s in kind.supports
        if s.expected_anomaly is None
    }
    for guarantee, variant, why in lacking(kind):
        lines[guarantee, variant] = (
            kind.name,
            guarantee,
            f"{variant} ({NOT_SUPPORTED})" if variant else NOT_SUPPORTED,
            why,
        )
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
