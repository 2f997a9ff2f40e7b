-- Replaces the nonstandard events by what Python parses.
-- Needs: keys, parsed. Changes: events.

-- name: rows
SELECT nonstandard FROM events WHERE nonstandard IS NOT NULL ORDER BY nonstandard;

-- name: remove
DELETE FROM events WHERE nonstandard IS NOT NULL;

-- name: enter
INSERT INTO events
SELECT p.pos, k.session, try_cast(p.seq AS UTINYINT), try_cast(p.value AS INTEGER), p.scheduled_at,
    CASE WHEN NOT p.json THEN 'not-json'
        ELSE invalid_reason(p.present, p.session_key = k.session_key, p.seq, p.type, p.value, p.scheduled_at)
    END, NULL
FROM parsed p LEFT JOIN keys k ON k.key = p.record_key;
