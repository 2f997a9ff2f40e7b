"""`python -m proofs.protocol_model [--only TEXT]`: searches the variants, prints results.

Promise: per variant the result, the number of worlds and the seconds; for a broken one also the shortest trace.
The exit code is 0 when every search has its expected result, 1 otherwise.
"""

from __future__ import annotations

import click

from proofs.protocol_model.search import Found, search
from proofs.protocol_model.variants import GROUPS, Variant


@click.command()
@click.option("--only", default="", help="Search only the variants whose name contains this text.")
@click.option("--traces/--no-traces", default=True, help="Print the steps that lead to each anomaly.")
def main(only: str, traces: bool) -> None:
    """Search the protocols for an order of events that breaks a guarantee."""
    surprises = 0
    for group, variants in GROUPS.items():
        chosen = [variant for variant in variants if only in variant.name]
        if chosen:
            click.echo(f"\n== {group}")
        for variant in chosen:
            found = search(variant.setting)
            click.echo(format_result(variant, found))
            surprises += found.anomaly != variant.expected
            if found.anomaly and traces:
                click.echo("\n".join(f"    {step}" for step in found.trace))
            elif found.open_at_end:
                click.echo("  may leave a transaction open until its time-out:" if traces else "  (left open)")
                click.echo("\n".join(f"    {step}" for step in found.open_at_end if traces), nl=traces)
    raise SystemExit(1 if surprises else 0)


def format_result(variant: Variant, found: Found) -> str:
    """The result of a search and its size."""
    if found.anomaly:
        result = f"{found.anomaly} after {len(found.trace)} steps"
    else:
        result = "sound" + (f", with {' '.join(sorted(found.seen))} as allowed" if found.seen else "")
    expected = "" if found.anomaly == variant.expected else f"  (EXPECTED {variant.expected or 'sound'})"
    bounds = str(variant.setting.bounds)
    return f"{variant.name}: {result}{expected}\n  {found.worlds:,} worlds in {found.seconds:.1f} s; {bounds}"


if __name__ == "__main__":
    main()
