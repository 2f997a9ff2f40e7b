"""The one renderer of tables: Markdown that is readable as plain text too."""

from __future__ import annotations

from collections.abc import Sequence


def grid(rows: Sequence[Sequence[str]], right_from: int | None = None) -> str:
    """A Markdown table whose columns are padded to one width.

    Args:
        rows: the first row holds the headings.
        right_from: columns from this index on are aligned to the right; None: no column is.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [right_from is not None and at >= right_from for at in range(len(widths))]
    rule = ["-" * (width - 1) + ":" if to_right else "-" * width for width, to_right in zip(widths, right, strict=True)]
    first, *rest = (_padded(row, widths, right) for row in rows)
    return "\n".join([_line(first), _line(rule), *map(_line, rest)]) + "\n"


def _padded(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    return [
        text.rjust(width) if to_right else text.ljust(width)
        for text, width, to_right in zip(row, widths, right, strict=True)
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
