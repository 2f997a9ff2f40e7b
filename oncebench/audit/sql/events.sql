-- Reads the input topic: which events are valid by themselves, and why the others are not.
-- Needs: input, input_repeated. Makes: keys, events.

-- How the pipeline writes the values of an unfinished session, but without spaces. `items`: (seq, value) by seq.
CREATE TEMP MACRO held_text(items) AS
'{"values":{' || array_to_string(list_transform(items, lambda item: '"' || item[1] || '":' || item[2]), ',') || '}}';

CREATE TEMP TABLE keys AS
SELECT key, try(decode(key)) AS session_key, CAST(row_number() OVER () AS INTEGER) AS session
FROM (SELECT DISTINCT key FROM input WHERE key IS NOT NULL);

CREATE TEMP MACRO type_at(seq) AS
CASE seq WHEN 0 THEN 'start_event' WHEN 99 THEN 'end_event' ELSE 'entry_event' END;

-- Why an event that is JSON is invalid by itself; null if it is valid.
-- `present`: how many of its five fields are there. `key_matches`: the record's key is the event's session_key.
CREATE TEMP MACRO invalid_reason(present, key_matches, seq, kind, number, scheduled_at) AS
CASE
    WHEN present < 5 OR key_matches IS NOT TRUE OR (seq BETWEEN 0 AND 99) IS NOT TRUE
        OR (number BETWEEN 0 AND 999999) IS NOT TRUE OR (scheduled_at BETWEEN 0 AND 9007199254740992) IS NOT TRUE
        THEN 'wrong-fields'
    WHEN (kind IN ('start_event', 'entry_event', 'end_event')) IS NOT TRUE THEN 'unknown-type'
    WHEN kind <> type_at(seq) THEN 'wrong-fields'
END;

-- One row per position. DuckDB's JSON functions accept text that is not JSON. So they decide only about a value that is
-- the same text when it is written again ("standard"). `nonstandard` is the row in the file of any other value, for
-- Python to parse. A long key or value is null here, and has a size.
CREATE TEMP TABLE events AS
WITH decoded AS (
    SELECT i.pos, i."at", k.session, k.session_key,
        CASE
            WHEN i.key IS NULL AND i.key_size IS NULL THEN 'null-key'
            WHEN i.value IS NULL AND i.value_size IS NULL THEN 'null-value'
            WHEN i.value_size > 65536 THEN 'too-large'
        END AS refused,
        CASE WHEN refused IS NULL THEN try(decode(i.value)) END AS text
    FROM input i LEFT JOIN keys k ON k.key = i.key LEFT JOIN input_repeated r ON r.pos = i.pos
    WHERE r.first_at IS NULL OR r.first_at = i."at"
), parsed AS (
    SELECT *, try(from_json(text, '{"session_key": "VARCHAR", "seq": "BIGINT", "type": "VARCHAR", "value": "BIGINT",
        "scheduled_at": "BIGINT"}')) AS e
    FROM decoded
), compared AS (
    SELECT *, '{"session_key":"' || e.session_key || '","seq":' || e.seq || ',"type":"' || e.type || '","value":'
        || e.value || ',"scheduled_at":' || e.scheduled_at || '}' AS rewritten,
        CASE WHEN text = rewritten THEN true
            ELSE (replace(text, ' ', '') = replace(rewritten, ' ', '')) IS TRUE END AS standard
    FROM parsed
)
SELECT pos, session, try_cast(e.seq AS UTINYINT) AS seq, try_cast(e.value AS INTEGER) AS value, e.scheduled_at,
    CASE WHEN standard
        THEN invalid_reason(5, e.session_key = session_key, e.seq, e.type, e.value, e.scheduled_at)
        ELSE refused END AS reason,
    CASE WHEN NOT standard AND refused IS NULL THEN "at" END AS nonstandard
FROM compared;
