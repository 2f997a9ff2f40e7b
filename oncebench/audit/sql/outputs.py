"""The output side in SQL: what each visible row says it is; what is missing, doubled, strange, wrong or out of order.

Promise: a row is known by its (session_key, j), never by totals; one loss and one duplicate are two counts. A session
key that the input does not know gets a number below 0, so that phantoms are counted like the rest.
"""

from __future__ import annotations

import duckdb

from oncebench.audit.sql.nonstandard_json import read_odd

# `parsed`: the six fields with their types and no other. A row whose `j` is null names none.
SHOWN = """
CREATE TEMP TABLE final_again AS
SELECT pos, min("at") AS stands FROM final GROUP BY pos HAVING count(*) > 1;

CREATE TEMP TABLE shown AS
WITH opened AS (
    SELECT f.pos, f.key, f.value AS raw, try(decode(f.value)) AS text,
        try(from_json(text, '{"session_key": "VARCHAR", "j": "BIGINT", "events": "BIGINT", "total": "BIGINT",
            "checksum": "BIGINT", "ended_at": "BIGINT"}')) AS e
    FROM final f LEFT JOIN final_again a ON a.pos = f.pos WHERE a.stands IS NULL OR a.stands = f."at"
), spelled AS (
    SELECT *, '{"session_key":"' || e.session_key || '","j":' || e.j || ',"events":' || e.events || ',"total":'
        || e.total || ',"checksum":' || e.checksum || ',"ended_at":' || e.ended_at || '}' AS again,
        CASE WHEN text = again THEN true ELSE (replace(text, ' ', '') = replace(again, ' ', '')) IS TRUE END AS usual
    FROM opened
)
SELECT pos, k.session, CASE WHEN usual AND k.session IS NULL THEN e.session_key END AS stranger,
    CASE WHEN usual THEN e.j END AS j, e.events, e.total, e.checksum, e.ended_at, usual AS parsed,
    encode(e.session_key) = s.key AS keyed, CASE WHEN NOT usual THEN raw END AS odd
FROM spelled s LEFT JOIN keys k ON usual AND k.session_key = e.session_key;
"""

ODD = """
CREATE TEMP TABLE odd_shown AS
SELECT o.pos, CASE WHEN o.j IS NOT NULL THEN k.session END AS session,
    CASE WHEN k.session IS NULL AND o.j IS NOT NULL THEN o.session_key END AS stranger,
    CASE WHEN o.session_key IS NOT NULL THEN o.j END AS j, o.events, o.total, o.checksum, o.ended_at,
    o.size = 6 AND o.present = 6 AND o.session_key IS NOT NULL AND o.j IS NOT NULL AND o.events IS NOT NULL
        AND o.total IS NOT NULL AND o.checksum IS NOT NULL AND o.ended_at IS NOT NULL AS whole,
    encode(o.session_key) = f.key AS keyed, CASE WHEN NOT whole THEN s.odd END AS odd
FROM odd_rows o JOIN shown s ON s.pos = o.pos
    JOIN (SELECT pos, arg_min(key, "at") AS key FROM final SEMI JOIN odd_rows USING (pos) GROUP BY pos) f
        ON f.pos = o.pos
    LEFT JOIN keys k ON k.session_key = o.session_key;

DELETE FROM shown WHERE odd IS NOT NULL;

INSERT INTO shown SELECT * FROM odd_shown;
"""

IDS = """
CREATE TEMP TABLE strangers AS
SELECT stranger, -row_number() OVER () AS session FROM (SELECT DISTINCT stranger FROM shown WHERE stranger IS NOT NULL);

UPDATE shown SET session = s.session FROM strangers s WHERE s.stranger = shown.stranger;

CREATE TEMP TABLE seen AS
SELECT session, j, pos // 17592186044416 AS partition, min(pos) AS first_pos, count(*) AS copies
FROM shown WHERE j IS NOT NULL GROUP BY ALL;

CREATE TEMP TABLE ids AS
SELECT session, j, CAST(sum(copies) AS BIGINT) AS copies, owed.session IS NOT NULL AS owed
FROM seen LEFT JOIN owed USING (session, j) GROUP BY ALL;

CREATE TEMP TABLE visible AS
SELECT o.session, o.covered, count(i.copies) AS rows FROM owed o LEFT JOIN ids i USING (session, j) GROUP BY ALL;
"""

COUNTS = {
    "LOSS": "SELECT sum(20 - rows) FROM visible WHERE covered",
    "LOSS.whole-sessions": "SELECT sum(20) FROM visible WHERE covered AND rows = 0",
    "LOSS.torn-sessions": "SELECT sum(20 - rows) FROM visible WHERE covered AND rows > 0",
    "PEND": "SELECT sum(20 - rows) FROM visible WHERE NOT covered",
    "TORN": "SELECT count(*) FROM visible WHERE covered AND rows BETWEEN 1 AND 19",
    "DUP": "SELECT sum(copies - 1) FROM ids",
    "DUP.same-partition": "SELECT sum(copies - 1) FROM seen",
    "DUP.other-partition": "SELECT (SELECT count(*) FROM seen) - (SELECT count(*) FROM ids)",
    "PHAN": "SELECT count(*) FROM ids WHERE NOT owed",
    "PHAN.unknown-session": "SELECT count(*) FROM ids ANTI JOIN sessions USING (session)",
    "PHAN.unfinished-session": "SELECT count(*) FROM ids JOIN sessions USING (session) WHERE arrived < 100",
    "PHAN.row-number": "SELECT count(*) FROM ids JOIN sessions USING (session) WHERE arrived = 100 AND NOT owed",
    # Payloads that can't be read are told apart by their bytes.
    "DIV": """
        SELECT count(*) FROM (
            SELECT session, j FROM shown JOIN ids USING (session, j) WHERE ids.copies > 1 GROUP BY session, j
            HAVING count(DISTINCT CASE WHEN parsed THEN {'events': events, 'total': total, 'checksum': checksum,
                'ended_at': ended_at, 'odd': odd} ELSE {'events': NULL, 'total': NULL, 'checksum': NULL,
                'ended_at': NULL, 'odd': odd} END) > 1
        )""",
    "CORR": """
        SELECT count(*) FROM shown s LEFT JOIN owed o USING (session, j)
        WHERE parsed IS NOT TRUE OR keyed IS NOT TRUE OR o.session IS NOT NULL AND (
            events <> 5 OR s.total <> o.total OR s.checksum <> o.checksum OR s.ended_at <> o.ended_at)""",
    "CORR.unreadable": "SELECT count(*) FROM shown WHERE parsed IS NOT TRUE",
    "CORR.wrong-key": "SELECT count(*) FROM shown WHERE parsed AND keyed IS NOT TRUE",
    "CORR.wrong-payload": """
        SELECT count(*) FROM shown s JOIN owed o USING (session, j) WHERE parsed AND keyed AND (
            events <> 5 OR s.total <> o.total OR s.checksum <> o.checksum OR s.ended_at <> o.ended_at)""",
    "REORD": """
        SELECT count(DISTINCT session) FROM (
            SELECT session, first_pos < lag(first_pos) OVER (PARTITION BY session, partition ORDER BY j) AS back
            FROM seen SEMI JOIN owed USING (session, j)
        ) WHERE back""",
    "SCAT": """
        SELECT count(*) FROM (
            SELECT session FROM shown SEMI JOIN owed USING (session, j)
            WHERE (SELECT is_log FROM run) GROUP BY session HAVING count(DISTINCT pos // 17592186044416) > 1
        )""",
    # Of a sink that shows a batch in one step: batches whose rows were not all first seen at the same look.
    "TORNB": """
        SELECT count(*) FROM (
            SELECT batch FROM (
                SELECT session, j, min(seen_us) AS seen_us FROM shown JOIN observed USING (pos)
                    SEMI JOIN owed USING (session, j) WHERE seen_us > 0 GROUP BY session, j
            ) JOIN sessions s USING (session) JOIN spans p ON p.partition = s.last_pos // 17592186044416
                AND s.last_pos % 17592186044416 >= p.start AND s.last_pos % 17592186044416 < p.below
            WHERE (SELECT at_once FROM run) GROUP BY batch HAVING count(DISTINCT seen_us) > 1
        )""",
    "LOSTC": """
        SELECT count(DISTINCT batch) FROM visible v JOIN sessions s USING (session)
            JOIN spans p ON p.partition = s.last_pos // 17592186044416
                AND s.last_pos % 17592186044416 >= p.start AND s.last_pos % 17592186044416 < p.below
        WHERE p.reported AND v.covered AND v.rows < 20""",
    "rows.expected": "SELECT count(*) FROM owed",
    "rows.visible": "SELECT count(*) FROM shown",
    "rows.visible_distinct": "SELECT sum(rows) FROM visible",
    "sessions.finished": "SELECT count(*) FROM sessions WHERE arrived = 100",
    "sessions.unfinished": "SELECT count(*) FROM sessions WHERE arrived < 100",
    "sessions.visible": "SELECT count(*) FROM visible WHERE rows = 20",
    "sessions.lost": "SELECT count(*) FROM visible WHERE rows = 0 AND covered",
}


def compare(con: duckdb.DuckDBPyConnection) -> None:
    """Make `shown`, `seen`, `ids` and `visible` from `final` and what `source.derive` has made."""
    con.execute(SHOWN)
    odd = con.sql("SELECT pos, odd FROM shown WHERE odd IS NOT NULL").to_arrow_reader()
    con.register("odd_rows", read_odd(odd, ("session_key",), ("j", "events", "total", "checksum", "ended_at")))
    con.execute(ODD)
    con.execute(IDS)
