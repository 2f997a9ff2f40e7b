"""`oncebench list`: what can be combined."""

from __future__ import annotations

import click

from oncebench.scenario import PROFILES, all_supports
from pipeline.failpoints import POINTS


@click.command("list")
@click.option("--profile", type=click.Choice(sorted(PROFILES)), help="Print the cells of a profile as commands.")
def list_cells(profile: str | None) -> None:
    """Show the sinks, guarantees, variants and failpoints, or the cells of a profile."""
    if profile:
        for cell in PROFILES[profile](None):
            click.echo(cell.reproduce())
        return
    lines = [("sink", "guarantee", "variant", "how it is kept")]
    lines += [
        (sink, support.delivery, support.variant + (" (default)" if support.default else ""), support.how)
        for sink, support in all_supports()
    ]
    widths = [max(len(line[at]) for line in lines) for at in range(3)]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, (*widths, 0), strict=True)).rstrip())
    click.echo("\nfailpoints, in the order of a batch: " + ", ".join(POINTS))
