-- Replaces the nonstandard events by what Python parsed.
-- Needs: keys, events, parsed_events. Changes: events.

CREATE TEMP TABLE checked_events AS
SELECT p.pos, e.session, try_cast(p.seq AS UTINYINT) AS seq, try_cast(p.value AS INTEGER) AS value, p.scheduled_at,
    CASE WHEN NOT p.json THEN 'not-json'
        ELSE invalid_reason(p.present, p.session_key = k.session_key, p.seq, p.type, p.value, p.scheduled_at)
    END AS reason
FROM parsed_events p JOIN events e ON e.pos = p.pos LEFT JOIN keys k ON k.session = e.session;

DELETE FROM events WHERE nonstandard IS NOT NULL;

INSERT INTO events SELECT *, NULL FROM checked_events;
