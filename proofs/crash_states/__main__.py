"""`python -m proofs.crash_states [--only TEXT] [--sink KIND]`: searches every variant, prints what it came to.

Promise: a line per variant and format with the calls recorded, the states built, the processor time and the result, and
the first state of each thing that is wrong; exit code 0 when each came to what it must, 1 otherwise.
"""

from __future__ import annotations

import click

from proofs.crash_states.search import Found
from proofs.crash_states.variants import FORMATS, GROUPS, Variant

# Of the calls before a state, so many are told: the last ones say where the power went.
CALLS_TOLD = 4


@click.command()
@click.option("--only", default="", help="Variants whose name contains this text.")
@click.option("--sink", type=click.Choice(list(FORMATS)), help="Files of this format only.")
@click.option("--examples/--no-examples", default=True, help="Print the first state of what is wrong.")
def main(only: str, sink: str | None, examples: bool) -> None:
    """Build every state that a power cut may leave, and look for one that breaks a promise."""
    surprises = 0
    for group, variants in GROUPS.items():
        chosen = [variant for variant in variants if only in variant.name]
        if chosen:
            click.echo(f"\n== {group}")
        for variant in chosen:
            click.echo(variant.name)
            for form in [sink] if sink else FORMATS:
                found = variant.come_to(form)
                click.echo(f"  {form}: {told(variant, found)}")
                surprises += variant.surprises(found)
                if examples:
                    click.echo("\n".join(_examples(found)), nl=bool(found.examples))
    raise SystemExit(1 if surprises else 0)


def told(variant: Variant, found: Found) -> str:
    """What a search came to, in a line."""
    result = ", ".join(f"{code} in {count:,}" for code, count in found.wrong.items()) or "none wrong"
    expected = f"  (EXPECTED {' '.join(sorted(variant.shows)) or 'none'})" if variant.surprises(found) else ""
    states = f"{found.states:,} states of {found.calls:,} calls{', then found out' if variant.found_out else ''}"
    return f"{states}: {result}{expected}; {found.seconds:.0f} s"


def _examples(found: Found) -> list[str]:
    lines = []
    for code, example in found.examples.items():
        left_out = max(0, len(example.calls) - CALLS_TOLD)
        lines += [f"    {code}: {example.what}", f"      after {left_out} calls and these, the power goes:"]
        lines += [f"        {call}" for call in example.calls[-CALLS_TOLD:]]
        lines += [f"      on the disk {lack}" for lack in example.lacks]
    return lines


if __name__ == "__main__":
    main()
