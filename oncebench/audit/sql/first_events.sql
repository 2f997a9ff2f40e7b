-- Finds the first event of each seq, in (partition, offset) order. divided.sql corrects the sessions whose order of
-- reading was another.
-- Needs: events. Makes: first_events, repeated_events.

-- `turn` orders the events of a session. `life` numbers the sessions of one key, if a time-out divided it.
CREATE TEMP TABLE first_events AS
SELECT session, CAST(0 AS BIGINT) AS life, seq, min(pos) AS pos, min(pos) AS turn, arg_min(value, pos) AS value,
    arg_min(scheduled_at, pos) AS scheduled_at, CAST(count(*) AS INTEGER) AS copies
FROM events WHERE reason IS NULL GROUP BY session, seq;

CREATE TEMP TABLE repeated_events AS
SELECT session, seq, pos FROM first_events WHERE copies > 1;
