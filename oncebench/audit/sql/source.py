"""The input side in SQL: which events are valid, which sessions they finish, and the rows that those owe.

Promise: the rules of DESIGN's load and pipeline, said a second time: an event counts by itself if its fields are right;
of a session's events with one seq the first in (partition, offset) order counts; a session is finished by the last of
its 100 first events; what comes later is after its end. Row j owes the events 5j..5j+4.

What can go wrong: where a file has one position twice, the first stands, as for the first auditor.
"""

from __future__ import annotations

import zlib

import duckdb
import pyarrow as pa

from oncebench.audit.sql.nonstandard_json import read_odd

PREPARE = """
CREATE TEMP TABLE keys AS
SELECT key, try(decode(key)) AS session_key, CAST(row_number() OVER () AS INTEGER) AS session
FROM (SELECT DISTINCT key FROM input WHERE key IS NOT NULL);

CREATE TEMP TABLE input_again AS
SELECT pos, min("at") AS stands FROM input GROUP BY pos HAVING count(*) > 1;

CREATE TEMP MACRO type_at(seq) AS
CASE seq WHEN 0 THEN 'start_event' WHEN 99 THEN 'end_event' ELSE 'entry_event' END;

-- Why an event that is JSON is invalid by itself; null if it is valid. `named`: its key is its session_key.
CREATE TEMP MACRO fault_of(present, named, seq, kind, number, scheduled_at) AS
CASE
    WHEN present < 5 OR named IS NOT TRUE OR (seq BETWEEN 0 AND 99) IS NOT TRUE
        OR (number BETWEEN 0 AND 999999) IS NOT TRUE OR (scheduled_at BETWEEN 0 AND 9007199254740992) IS NOT TRUE
        THEN 'wrong-fields'
    WHEN (kind IN ('start_event', 'entry_event', 'end_event')) IS NOT TRUE THEN 'unknown-type'
    WHEN kind <> type_at(seq) THEN 'wrong-fields'
END;
"""

# One row per position. `odd` is the value where it has to be read one by one.
TOLD = """
CREATE TEMP TABLE told AS
WITH opened AS (
    SELECT i.pos, k.session, k.session_key, i.value AS raw,
        CASE
            WHEN i.key IS NULL THEN 'null-key'
            WHEN i.value IS NULL THEN 'null-value'
            WHEN octet_length(i.value) > 65536 THEN 'too-large'
        END AS refused,
        CASE WHEN refused IS NULL THEN try(decode(i.value)) END AS text
    FROM input i LEFT JOIN keys k ON k.key = i.key LEFT JOIN input_again a ON a.pos = i.pos
    WHERE a.stands IS NULL OR a.stands = i."at"
), parsed AS (
    SELECT *, try(from_json(text, '{"session_key": "VARCHAR", "seq": "BIGINT", "type": "VARCHAR", "value": "BIGINT",
        "scheduled_at": "BIGINT"}')) AS e
    FROM opened
), spelled AS (
    SELECT *, '{"session_key":"' || e.session_key || '","seq":' || e.seq || ',"type":"' || e.type || '","value":'
        || e.value || ',"scheduled_at":' || e.scheduled_at || '}' AS again,
        CASE WHEN text = again THEN true ELSE (replace(text, ' ', '') = replace(again, ' ', '')) IS TRUE END AS usual
    FROM parsed
)
SELECT pos, session, try_cast(e.seq AS UTINYINT) AS seq, try_cast(e.value AS INTEGER) AS value, e.scheduled_at,
    CASE WHEN usual THEN fault_of(5, e.session_key = session_key, e.seq, e.type, e.value, e.scheduled_at)
        ELSE refused END AS reason,
    CASE WHEN NOT usual AND refused IS NULL THEN raw END AS odd
FROM spelled;
"""

ODD = """
CREATE TEMP TABLE odd_told AS
SELECT o.pos, t.session, try_cast(o.seq AS UTINYINT) AS seq, try_cast(o.value AS INTEGER) AS value, o.scheduled_at,
    CASE WHEN NOT o.json THEN 'not-json' ELSE fault_of(o.present, o.session_key = k.session_key, o.seq, o.type, o.value,
        o.scheduled_at) END AS reason
FROM odd_events o JOIN told t ON t.pos = o.pos LEFT JOIN keys k ON k.session = t.session;

DELETE FROM told WHERE odd IS NOT NULL;

INSERT INTO told SELECT *, NULL FROM odd_told;
"""

SESSIONS = """
CREATE TEMP TABLE firsts AS
SELECT session, seq, min(pos) AS pos, arg_min(value, pos) AS value, arg_min(scheduled_at, pos) AS scheduled_at,
    CAST(count(*) AS INTEGER) AS copies
FROM told WHERE reason IS NULL GROUP BY session, seq;

-- Covered: the pipeline has committed each of the session's events, in whatever partition it stands.
CREATE TEMP TABLE sessions AS
SELECT session, CAST(sum(events) AS INTEGER) AS arrived, max(last_pos) AS last_pos, max(ended_at) AS ended_at,
    bool_and(last_pos % 17592186044416 < coalesce(c.below, 0)) AS covered
FROM (
    SELECT session, pos // 17592186044416 AS partition, count(*) AS events, max(pos) AS last_pos,
        max(scheduled_at) FILTER (seq = 99) AS ended_at
    FROM firsts GROUP BY ALL
) LEFT JOIN committed c USING (partition) GROUP BY session;

CREATE TEMP TABLE firsts_again AS
SELECT session, seq, pos FROM firsts WHERE copies > 1;

CREATE TEMP TABLE invalid AS
SELECT pos, reason FROM told WHERE reason IS NOT NULL
UNION ALL
SELECT t.pos, CASE WHEN s.arrived = 100 AND t.pos > s.last_pos THEN 'after-end' ELSE 'repeated-seq' END
FROM told t JOIN firsts_again f ON f.session = t.session AND f.seq = t.seq JOIN sessions s ON s.session = t.session
WHERE t.reason IS NULL AND t.pos <> f.pos;
"""

OWED = """
SELECT session, j, total, encode(concat(5 * j, '=', v0, ';', 5 * j + 1, '=', v1, ';', 5 * j + 2, '=', v2, ';',
    5 * j + 3, '=', v3, ';', 5 * j + 4, '=', v4, ';')) AS text, ended_at, covered
FROM (
    SELECT session, CAST(seq // 5 AS BIGINT) AS j, CAST(sum(value) AS BIGINT) AS total,
        max(value) FILTER (seq % 5 = 0) AS v0, max(value) FILTER (seq % 5 = 1) AS v1,
        max(value) FILTER (seq % 5 = 2) AS v2, max(value) FILTER (seq % 5 = 3) AS v3,
        max(value) FILTER (seq % 5 = 4) AS v4
    FROM firsts GROUP BY session, seq // 5
) JOIN sessions USING (session) WHERE arrived = 100
"""


def derive(con: duckdb.DuckDBPyConnection) -> None:
    """Make `keys`, `told`, `firsts`, `sessions`, `invalid` and `owed` from `input` and `committed`."""
    con.execute(PREPARE)
    con.execute(TOLD)
    odd = con.sql("SELECT pos, odd FROM told WHERE odd IS NOT NULL").to_arrow_reader()
    con.register("odd_events", read_odd(odd, ("session_key", "type"), ("seq", "value", "scheduled_at")))
    con.execute(ODD)
    con.execute(SESSIONS)
    con.register("owed", _with_checksums(con.sql(OWED).to_arrow_table()))


def _with_checksums(rows: pa.Table) -> pa.Table:
    """`text` becomes `checksum`: SQL has no CRC-32."""
    at = rows.schema.get_field_index("text")
    sums = [pa.array([zlib.crc32(text) for text in chunk.to_pylist()], pa.int64()) for chunk in rows["text"].chunks]
    return rows.set_column(at, "checksum", pa.chunked_array(sums, pa.int64()))
