"""`python -m proofs.object_states [--only TEXT] [--every N]`: searches the variants.

Promise: a line per variant, and the first case of each anomaly. The exit code is 0 when every search has its expected
result, 1 otherwise.
"""

from __future__ import annotations

import click

from proofs.object_states.variants import GROUPS


@click.command()
@click.option("--only", default="", help="Search only the variants whose name contains this text.")
@click.option("--every", type=click.IntRange(1), default=1, help="Judge one of this many cases.")
def main(only: str, every: int) -> None:
    """Disturb a driver at every request to an object store.

    The search looks for a case that breaks a guarantee.
    """
    surprises = 0
    for group, variants in GROUPS.items():
        click.echo(f"\n== {group}")
        for variant in (each for each in variants if only in each.name):
            found = variant.run(every)
            result = ", ".join(f"{code} in {count:,}" for code, count in found.wrong.items()) or "none wrong"
            unexpected = f"  (EXPECTED {' '.join(variant.expected) or 'none'})" if variant.surprises(found) else ""
            surprises += variant.surprises(found)
            click.echo(f"{variant.name}: {found.cases:,} cases, {result}{unexpected}; {found.seconds:.0f} s")
            for code, example in found.examples.items():
                click.echo(f"    {code}: {example}")
    raise SystemExit(1 if surprises else 0)


if __name__ == "__main__":
    main()
