"""`python -m proofs.crash_states [--only TEXT] [--sink KIND]`: searches the variants.

Promise: a line per variant and format with the number of states and calls, the result and the processor time. For each
anomaly it prints the first state that shows it. The exit code is 0 when every search has its expected result, 1
otherwise.
"""

from __future__ import annotations

import click

from proofs.crash_states.search import Found
from proofs.crash_states.variants import FORMATS, GROUPS, Variant

# The number of calls printed before a state; the last ones show where the power was cut.
CALLS_PRINTED = 4


@click.command()
@click.option("--only", default="", help="Search only the variants whose name contains this text.")
@click.option("--sink", type=click.Choice(list(FORMATS)), help="Search only this file sink.")
@click.option("--examples/--no-examples", default=True, help="Print the first state of each anomaly.")
def main(only: str, sink: str | None, examples: bool) -> None:
    """Build every state that a power cut may leave, and look for one that breaks a guarantee."""
    surprises = 0
    for group, variants in GROUPS.items():
        chosen = [variant for variant in variants if only in variant.name]
        if chosen:
            click.echo(f"\n== {group}")
        for variant in chosen:
            click.echo(variant.name)
            for form in [sink] if sink else FORMATS:
                found = variant.run(form)
                click.echo(f"  {form}: {format_result(variant, found)}")
                surprises += variant.surprises(found)
                if examples:
                    click.echo("\n".join(_examples(found)), nl=bool(found.examples))
    raise SystemExit(1 if surprises else 0)


def format_result(variant: Variant, found: Found) -> str:
    """The result of a search in one line."""
    result = ", ".join(f"{code} in {count:,}" for code, count in found.wrong.items()) or "none wrong"
    expected = f"  (EXPECTED {' '.join(sorted(variant.expected)) or 'none'})" if variant.surprises(found) else ""
    states = f"{found.states:,} states of {found.calls:,} calls{', then stopped' if variant.stops_early else ''}"
    return f"{states}: {result}{expected}; {found.seconds:.0f} s"


def _examples(found: Found) -> list[str]:
    lines = []
    for code, example in found.examples.items():
        left_out = max(0, len(example.calls) - CALLS_PRINTED)
        lines += [f"    {code}: {example.what}", f"      the power is cut after {left_out} calls and these:"]
        lines += [f"        {call}" for call in example.calls[-CALLS_PRINTED:]]
        lines += [f"      on the disk {difference}" for difference in example.lacks]
    return lines


if __name__ == "__main__":
    main()
