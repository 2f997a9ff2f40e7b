-- Reads the input topic of the workload `records`: an event holds a line of the user's file in `record`.
-- Needs: input, input_repeated. Makes: read_records.

-- The first 60 bits of the record's SHA-256.
CREATE TEMP MACRO digest_of(record) AS CAST('0x' || substr(sha256(record), 1, 15) AS BIGINT);

CREATE TEMP MACRO is_event(id, load, n, scheduled_at, record) AS
(id IS NOT NULL AND record IS NOT NULL AND regexp_full_match(load, '[0-9a-f]{1,16}')
    AND n BETWEEN 0 AND 9999999999 AND scheduled_at BETWEEN 0 AND 9007199254740992) IS TRUE;

-- One row per position. `nonstandard` is as in events.sql. A value is null in the file, or long and null here.
CREATE TEMP TABLE read_records AS
WITH decoded AS (
    SELECT i.pos, i."at", i.value IS NULL AND i.value_size IS NULL AS empty, try(decode(i.value)) AS text
    FROM input i LEFT JOIN input_repeated r ON r.pos = i.pos WHERE r.first_at IS NULL OR r.first_at = i."at"
), parsed AS (
    SELECT *, try(from_json(text, '{"id": "VARCHAR", "load": "VARCHAR", "n": "BIGINT", "scheduled_at": "BIGINT",
        "record": "VARCHAR"}')) AS e
    FROM decoded
), compared AS (
    SELECT *, (text = '{"id":' || CAST(to_json(e.id) AS VARCHAR) || ',"load":"' || e.load || '","n":' || e.n
        || ',"scheduled_at":' || e.scheduled_at || ',"record":' || CAST(to_json(e.record) AS VARCHAR) || '}') IS TRUE
        AS standard
    FROM parsed
)
SELECT pos, e.id, e.load, e.n, e.scheduled_at, octet_length(encode(e.record)) AS size, digest_of(e.record) AS digest,
    standard AND is_event(e.id, e.load, e.n, e.scheduled_at, e.record) AS valid,
    CASE WHEN NOT standard AND NOT empty THEN "at" END AS nonstandard
FROM compared;
