"""The log beneath the output, in SQL: who wrote each stretch of it, and how its transaction ended.

Promise: the counts EXPO and STALE, by the offsets of each stretch and not by totals.
"""

from __future__ import annotations

LOG = """
CREATE TEMP TABLE stretches AS
SELECT pos AS first_pos, pos + last_offset - "offset" AS last_pos, records, generation,
    max(generation) OVER (
        PARTITION BY partition ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS newest
FROM log WHERE marker IS NULL;
"""

COUNTS = {
    "EXPO": """
        SELECT (SELECT coalesce(sum(records), 0) FROM stretches)
            - (SELECT count(*) FROM shown JOIN stretches ON pos BETWEEN first_pos AND last_pos)""",
    "STALE": """
        SELECT count(*) FROM shown JOIN stretches ON pos BETWEEN first_pos AND last_pos
        WHERE generation < newest""",
}
