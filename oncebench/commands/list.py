"""`oncebench list`: what can be combined."""

from __future__ import annotations

import click

from oncebench.scenario import PROFILES
from pipeline.failpoints import POINTS
from pipeline.sinks.contract import Support
from pipeline.sinks.registry import SINKS


@click.command("list")
@click.option("--profile", type=click.Choice(sorted(PROFILES)), help="Print the cells of a profile as commands.")
@click.option("--sink", "sinks", multiple=True, help="Of that profile, the cells of these sinks only.")
def list_cells(profile: str | None, sinks: tuple[str, ...]) -> None:
    """Show the sinks, guarantees, variants and failpoints, or the cells of a profile."""
    if profile:
        for cell in PROFILES[profile].chosen(None, sinks):
            click.echo(cell.reproduce())
        return
    lines = [("sink", "guarantee", "variant", "how it is kept")]
    for kind in SINKS.values():
        lines += [(kind.name, s.delivery, _variant(s), s.how) for s in kind.supports if s.shows is None]
        lines += [(kind.name, what, "n/a", why) for what, why in kind.lacks.items()]
    broken = [
        (kind.name, support.delivery, support.variant, f"{support.how}: {support.shows}")
        for kind in SINKS.values()
        for support in kind.supports
        if support.shows is not None
    ]
    if broken:
        lines += [("", "", "", ""), ("broken on purpose, to show what the details are for:", "", "", ""), *broken]
    widths = [max(len(line[at]) for line in lines if line[1]) for at in range(3)]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, (*widths, 0), strict=True)).rstrip())
    click.echo("\nfailpoints, in the order of a batch: " + ", ".join(POINTS))


def _variant(support: Support) -> str:
    return support.variant + (" (default)" if support.default else "")
