"""Beside the rows, in SQL: the load against its ledger, the quarantine, two reads of one topic, and their ends.

Promise: the counts SRC, QUAR, INCO and STALL-LSO, and how many events there were. An event is the generator's own if
its session, seq and scheduled time are of the ledger and it was sent; anybody else's is foreign, and no fault.
"""

from __future__ import annotations

# Several events for one (session, seq) are told apart by their scheduled time.
LEDGER = """
CREATE TEMP TABLE planned AS
SELECT number, k.session FROM (
    SELECT number, (SELECT prefix FROM run) || printf('%08d', number) AS session_key
    FROM (SELECT DISTINCT session AS number FROM ledger)
) JOIN keys k USING (session_key);

CREATE TEMP TABLE crowded AS
SELECT t.session, t.seq, t.scheduled_at, count(*) AS copies, min(t.pos) AS pos
FROM told t JOIN firsts_again f ON f.session = t.session AND f.seq = t.seq
WHERE t.reason IS NULL GROUP BY ALL;

CREATE TEMP TABLE sent AS
SELECT l.acked_us > 0 AS acked,
    CASE WHEN l."offset" >= 0 THEN l.partition * 17592186044416 + l."offset" END AS told_pos,
    CASE WHEN f.copies = 1 THEN f.pos ELSE c.pos END AS pos,
    CASE WHEN l.sent_us > 0 IS NOT TRUE THEN 0 WHEN f.copies = 1 THEN CAST(f.scheduled_at = l.scheduled_us AS INTEGER)
        ELSE coalesce(c.copies, 0) END AS copies
FROM ledger l LEFT JOIN planned p ON p.number = l.session
    LEFT JOIN firsts f ON f.session = p.session AND f.seq = l.seq
    LEFT JOIN crowded c ON c.session = p.session AND c.seq = l.seq AND c.scheduled_at = l.scheduled_us;
"""

QUARANTINE = """
CREATE TEMP TABLE held AS
SELECT key, value, reason,
    CASE WHEN source_partition BETWEEN 0 AND 524287 AND source_offset BETWEEN 0 AND 17592186044415
        THEN source_partition * 17592186044416 + source_offset END AS pos,
    -- What an unfinished session held when its timer fired: it comes without a place, and is no fault.
    (reason = 'never-ended' AND source_partition IS NULL AND source_offset IS NULL
        AND key IN (SELECT key FROM keys JOIN sessions USING (session) WHERE arrived < 100)) IS TRUE AS never_ended
FROM quarantine;

CREATE TEMP TABLE originals AS
SELECT pos, arg_min({'key': key, 'value': value}, "at") AS record
FROM input SEMI JOIN held USING (pos) SEMI JOIN invalid USING (pos) GROUP BY pos;
"""

# A position at which two reads, or one read twice, do not show the same, or which only the earlier read shows. Of two
# contents of one read the first in the file counts, the observer's first by time; of several kinds the first.
READS = """
CREATE TEMP TABLE observed_again AS
SELECT pos, first("at" ORDER BY seen_us, "at") AS stands FROM observed GROUP BY pos HAVING count(*) > 1;

CREATE TEMP TABLE inconsistent AS
SELECT pos, min(kind) AS kind FROM (
    SELECT f.pos, 1 AS kind FROM final f JOIN observed o ON o.pos = f.pos
        LEFT JOIN final_again fa ON fa.pos = f.pos LEFT JOIN observed_again oa ON oa.pos = o.pos
    WHERE coalesce(fa.stands = f."at", true) AND coalesce(oa.stands = o."at", true)
        AND (f.key IS DISTINCT FROM o.key OR f.value IS DISTINCT FROM o.value)
    UNION ALL
    SELECT o.pos, 2 FROM observed o LEFT JOIN read_to r ON r.partition = o.partition ANTI JOIN final USING (pos)
    WHERE o."offset" < coalesce(r.below, (SELECT below FROM run))
    UNION ALL
    SELECT pos, 3 FROM (SELECT pos, key, value FROM final SEMI JOIN final_again USING (pos))
    GROUP BY pos HAVING count(DISTINCT {'key': key, 'value': value}) > 1
    UNION ALL
    SELECT pos, 4 FROM (SELECT pos, key, value FROM observed SEMI JOIN observed_again USING (pos))
    GROUP BY pos HAVING count(DISTINCT {'key': key, 'value': value}) > 1
) GROUP BY pos;
"""

# KIP-664: a transaction hangs if its coordinator runs none in that partition, or has not ended it 10 s after its time.
STUCK = """
CREATE TEMP TABLE stuck AS
SELECT e.partition, bool_or(
    state IS NULL OR state NOT IN ('Ongoing', 'PrepareCommit', 'PrepareAbort', 'PrepareEpochFence') OR NOT here
    OR started_ms + timeout_ms + 10000 < asked_ms
) FILTER (o.partition IS NOT NULL) AS hanging
FROM ends e LEFT JOIN open_transactions o ON o.partition = e.partition WHERE lso < hw GROUP BY e.partition;
"""

MISSING = "SELECT count(*) FROM (SELECT pos FROM invalid ANTI JOIN held USING (pos))"
UNASKED = """
    SELECT (SELECT count(DISTINCT pos) FROM held ANTI JOIN invalid USING (pos))
        + (SELECT count(*) FROM held WHERE pos IS NULL AND NOT never_ended)"""
CHANGED = """
    SELECT count(DISTINCT pos) FROM held JOIN originals o USING (pos)
    WHERE key IS DISTINCT FROM o.record.key OR value IS DISTINCT FROM o.record.value"""

COUNTS = {
    "SRC": """
        SELECT count(*) FROM sent
        WHERE acked AND (copies <> 1 OR told_pos IS NOT NULL AND told_pos <> pos)""",
    "SRC.absent": "SELECT count(*) FROM sent WHERE acked AND copies = 0",
    "SRC.twice": "SELECT count(*) FROM sent WHERE acked AND copies > 1",
    "SRC.elsewhere": "SELECT count(*) FROM sent WHERE acked AND copies = 1 AND told_pos <> pos",
    "QUAR": f"SELECT ({MISSING}) + ({UNASKED}) + ({CHANGED})",
    "QUAR.missing": MISSING,
    "QUAR.unasked": UNASKED,
    "QUAR.changed": CHANGED,
    "INCO": "SELECT count(*) FROM inconsistent",
    "INCO.changed": "SELECT count(*) FROM inconsistent WHERE kind = 1",
    "INCO.vanished": "SELECT count(*) FROM inconsistent WHERE kind = 2",
    "INCO.final-read-twice": "SELECT count(*) FROM inconsistent WHERE kind = 3",
    "INCO.observed-twice": "SELECT count(*) FROM inconsistent WHERE kind = 4",
    "STALL-LSO": "SELECT count(*) FROM ends WHERE lso < hw",
    "STALL-LSO.hanging": "SELECT count(*) FROM stuck WHERE hanging",
    "STALL-LSO.delayed": "SELECT count(*) FROM stuck WHERE NOT hanging",
    "STALL-LSO.untold": "SELECT count(*) FROM stuck WHERE hanging IS NULL",
    "sessions.acknowledged": """
        SELECT count(*) FROM (SELECT session FROM ledger GROUP BY session HAVING bool_and(acked_us > 0))""",
    "events.in_topic": "SELECT count(*) FROM told",
    "events.invalid": "SELECT count(*) FROM invalid",
    "events.foreign": "SELECT count(*) - (SELECT coalesce(sum(copies), 0) FROM sent) FROM told",
    "events.quarantined": "SELECT count(*) FROM quarantine",
    "events.quarantined_for_another_reason": """
        SELECT count(*) FROM held JOIN invalid i USING (pos) WHERE held.reason IS DISTINCT FROM i.reason""",
}
