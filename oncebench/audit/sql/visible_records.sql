-- Reads the final read of the workload `records`: as visible_rows.sql, with a field `record` in each row.
-- Needs: final, keys. Makes: final_repeated, visible_rows.

CREATE TEMP TABLE final_repeated AS
SELECT pos, min("at") AS first_at FROM final GROUP BY pos HAVING count(*) > 1;

-- A row is standard only if `total` is the number of its record's bytes, and `checksum` their digest.
CREATE TEMP TABLE visible_rows AS
WITH decoded AS (
    SELECT f.pos, f.key, CASE WHEN f.value IS NOT NULL OR f.value_sum IS NOT NULL THEN f."at" END AS "at",
        try(decode(f.value)) AS text,
        try(from_json(text, '{"session_key": "VARCHAR", "j": "BIGINT", "events": "BIGINT", "total": "BIGINT",
            "checksum": "BIGINT", "ended_at": "BIGINT", "record": "VARCHAR"}')) AS e
    FROM final f LEFT JOIN final_repeated r ON r.pos = f.pos WHERE r.first_at IS NULL OR r.first_at = f."at"
), compared AS (
    SELECT *, (text = '{"session_key":' || CAST(to_json(e.session_key) AS VARCHAR) || ',"j":' || e.j || ',"events":'
        || e.events || ',"total":' || e.total || ',"checksum":' || e.checksum || ',"ended_at":' || e.ended_at
        || ',"record":' || CAST(to_json(e.record) AS VARCHAR) || '}'
        AND e.total = octet_length(encode(e.record)) AND e.checksum = digest_of(e.record)) IS TRUE AS standard
    FROM decoded
)
SELECT pos, k.session, CASE WHEN standard AND k.session IS NULL THEN e.session_key END AS unknown_key,
    CASE WHEN standard THEN e.j END AS j, e.events, e.total, e.checksum, e.ended_at, standard AS parsed,
    encode(e.session_key) = c.key AS keyed, CASE WHEN NOT standard THEN "at" END AS nonstandard,
    CAST(NULL AS VARCHAR) AS content
FROM compared c LEFT JOIN keys k ON standard AND k.session_key = e.session_key;
