"""`python -m proofs.protocol_model [--only TEXT]`: searches every variant, prints what it came to.

Promise: a line per variant with the worlds seen, the seconds and the result, and the shortest trace of what is broken;
exit code 0 when each came to what it must, 1 otherwise.
"""

from __future__ import annotations

import click

from proofs.protocol_model.search import Found, search
from proofs.protocol_model.variants import GROUPS, Variant


@click.command()
@click.option("--only", default="", help="Variants whose name contains this text.")
@click.option("--traces/--no-traces", default=True, help="Print how a broken one is broken.")
def main(only: str, traces: bool) -> None:
    """Search the protocols for an order of events that breaks a promise."""
    surprises = 0
    for group, variants in GROUPS.items():
        chosen = [variant for variant in variants if only in variant.name]
        if chosen:
            click.echo(f"\n== {group}")
        for variant in chosen:
            found = search(variant.setting)
            click.echo(told(variant, found))
            surprises += found.anomaly != variant.shows
            if found.anomaly and traces:
                click.echo("\n".join(f"    {step}" for step in found.trace))
            elif found.open_at_end:
                click.echo("  can leave a transaction open until its time-out:" if traces else "  (left open)")
                click.echo("\n".join(f"    {step}" for step in found.open_at_end if traces), nl=traces)
    raise SystemExit(1 if surprises else 0)


def told(variant: Variant, found: Found) -> str:
    """What a search came to, in a line."""
    if found.anomaly:
        result = f"{found.anomaly} after {len(found.trace)} steps"
    else:
        result = "sound" + (f", shows {' '.join(sorted(found.seen))}" if found.seen else "")
    expected = "" if found.anomaly == variant.shows else f"  (EXPECTED {variant.shows or 'sound'})"
    bounds = str(variant.setting.bounds)
    return f"{variant.name}: {result}{expected}\n  {found.worlds:,} worlds in {found.seconds:.1f} s; {bounds}"


if __name__ == "__main__":
    main()
