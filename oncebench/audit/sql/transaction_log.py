"""The log beneath the output, in SQL: who wrote each stretch of it, and how its transaction ended.

Promise: the counts EXPO, STALE and G1a, by the offsets of each stretch and not by totals; EXPO and G1a also by fate.
"""

from __future__ import annotations

LOG = """
CREATE TEMP TABLE stretches AS
SELECT pos AS first_pos, pos + last_offset - "offset" AS last_pos, records, generation,
    max(generation) OVER (
        PARTITION BY partition ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS newest,
    -- No marker of the producer's behind it: its transaction is open.
    CASE WHEN transactional THEN coalesce((
        SELECT arg_min(m.marker, m.pos) FROM log m
        WHERE m.marker IS NOT NULL AND m.partition = log.partition AND m.producer = log.producer AND m.pos > log.pos
    ), 'open') END AS fate
FROM log WHERE marker IS NULL;

CREATE TEMP TABLE hidden AS
SELECT fate, sum(records) AS records FROM (
    SELECT fate, records FROM stretches
    UNION ALL
    SELECT fate, -count(*) FROM shown JOIN stretches ON pos BETWEEN first_pos AND last_pos GROUP BY fate
) GROUP BY fate;

-- What is open in a log that was not read to its end may have ended; so may what only the observer saw.
CREATE TEMP TABLE unsettled AS
SELECT fate, count(*) AS rows FROM (SELECT pos FROM final UNION SELECT pos FROM observed)
    JOIN stretches ON pos BETWEEN first_pos AND last_pos WHERE fate = 'abort' GROUP BY fate
UNION ALL
SELECT fate, count(*) AS rows FROM shown
    JOIN stretches ON pos BETWEEN first_pos AND last_pos
    WHERE fate = 'open' AND (SELECT log_whole FROM run) GROUP BY fate;
"""

COUNTS = {
    "EXPO": "SELECT sum(records) FROM hidden",
    "EXPO.committed": "SELECT sum(records) FROM hidden WHERE fate = 'commit'",
    "EXPO.aborted": "SELECT sum(records) FROM hidden WHERE fate = 'abort'",
    "EXPO.open": "SELECT sum(records) FROM hidden WHERE fate = 'open'",
    "EXPO.plain": "SELECT sum(records) FROM hidden WHERE fate IS NULL",
    "G1a": "SELECT sum(rows) FROM unsettled",
    "G1a.aborted": "SELECT sum(rows) FROM unsettled WHERE fate = 'abort'",
    "G1a.open": "SELECT sum(rows) FROM unsettled WHERE fate = 'open'",
    "STALE": """
        SELECT count(*) FROM shown JOIN stretches ON pos BETWEEN first_pos AND last_pos
        WHERE generation < newest""",
}
