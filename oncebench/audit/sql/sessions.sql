-- Finds the sessions: of several valid events with one seq the first one counts, in (partition, offset) order.
-- Needs: events, committed. Makes: first_events, repeated_events, sessions, invalid_events.

CREATE TEMP TABLE first_events AS
SELECT session, seq, min(pos) AS pos, arg_min(value, pos) AS value, arg_min(scheduled_at, pos) AS scheduled_at,
    CAST(count(*) AS INTEGER) AS copies
FROM events WHERE reason IS NULL GROUP BY session, seq;

CREATE TEMP TABLE repeated_events AS
SELECT session, seq, pos FROM first_events WHERE copies > 1;

-- A session is finished when all 100 events have arrived. It is covered when the pipeline has committed the offset of each of
-- its events, in whatever partition the event is.
CREATE TEMP TABLE sessions AS
SELECT session, CAST(sum(events) AS INTEGER) AS arrived, max(last_pos) AS last_pos, max(ended_at) AS ended_at,
    bool_and(offset_of(last_pos) < coalesce(c.below, 0)) AS covered
FROM (
    SELECT session, partition_of(pos) AS partition, count(*) AS events, max(pos) AS last_pos,
        max(scheduled_at) FILTER (seq = 99) AS ended_at
    FROM first_events GROUP BY ALL
) LEFT JOIN committed c USING (partition) GROUP BY session;

-- Invalid by itself; or valid, but repeated in its session, or after the session's end.
CREATE TEMP TABLE invalid_events AS
SELECT pos, reason FROM events WHERE reason IS NOT NULL
UNION ALL
SELECT e.pos, CASE WHEN s.arrived = 100 AND e.pos > s.last_pos THEN 'after-end' ELSE 'repeated-seq' END
FROM events e JOIN repeated_events r ON r.session = e.session AND r.seq = e.seq JOIN sessions s ON s.session = e.session
WHERE e.reason IS NULL AND e.pos <> r.pos;
