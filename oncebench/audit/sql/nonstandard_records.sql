-- Replaces the nonstandard events of the workload `records` by what Python parses. Needs: parsed. Changes: read_records.

-- name: rows
SELECT nonstandard FROM read_records WHERE nonstandard IS NOT NULL ORDER BY nonstandard;

-- name: remove
DELETE FROM read_records WHERE nonstandard IS NOT NULL;

-- name: enter
INSERT INTO read_records
SELECT pos, id, load, n, scheduled_at, octet_length(encode(record)), digest_of(record),
    size = 5 AND present = 5 AND is_event(id, load, n, scheduled_at, record), NULL
FROM parsed;
