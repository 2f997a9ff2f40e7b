-- The order in which the pipeline read events, and the sessions that its time-out divided: docs/anomalies.md.
-- Needs: events, first_events, repeated_events, input, batch_ends, quarantined, timers, run.
-- Makes: ordered_events. Changes: first_events.

-- Only these sessions can differ from the order of their positions, or be divided.
CREATE TEMP TABLE asked AS
SELECT session FROM repeated_events
UNION SELECT session FROM first_events GROUP BY session HAVING min(partition_of(pos)) < max(partition_of(pos))
UNION SELECT session FROM timers;

-- The first batch whose end is beyond an event has read it.
CREATE TEMP TABLE readers AS
SELECT partition, below, min(number) AS number FROM (
    SELECT number, partition, max(below) OVER (PARTITION BY partition ORDER BY number) AS below FROM batch_ends
) GROUP BY partition, below;

-- An event may begin a new session if the time-out has passed since the newest event before, and if it was accepted.
CREATE TEMP TABLE in_order AS
WITH asked_events AS (
    SELECT session, seq, pos, value, scheduled_at, partition_of(pos) AS partition, offset_of(pos) AS "offset"
    FROM events SEMI JOIN asked USING (session) WHERE reason IS NULL
), timed AS (
    SELECT pos, arg_min(timestamp_ms, "at") AS ms FROM input SEMI JOIN asked_events USING (pos) GROUP BY pos
), read AS (
    SELECT e.session, e.seq, e.pos, e.value, e.scheduled_at, t.ms,
        row_number() OVER (PARTITION BY e.session ORDER BY r.number NULLS LAST, e.pos) AS turn
    FROM asked_events e JOIN timed t USING (pos)
        ASOF LEFT JOIN readers r ON e.partition = r.partition AND e."offset" < r.below
)
SELECT *, sum(begins) OVER (PARTITION BY session ORDER BY turn) AS piece FROM (
    SELECT *, CAST(coalesce(ms - max(ms) OVER (
        PARTITION BY session ORDER BY turn ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) >= (SELECT timeout_ms FROM run), false) AND pos NOT IN (SELECT pos FROM quarantined WHERE pos IS NOT NULL)
        AS INTEGER) AS begins
    FROM read
);

-- A session may span several pieces. It ends with a piece if all of its events are there, or if a timer took exactly
-- these values.
CREATE TEMP TABLE ends_of_spans AS
SELECT session, first_piece, min(last_piece) AS last_piece FROM (
    SELECT session, first_piece, last_piece, count(*) AS arrived, held_text(list((seq, value) ORDER BY seq)) AS held
    FROM (
        SELECT o.session, a.piece AS first_piece, b.piece AS last_piece, o.seq, arg_min(o.value, o.turn) AS value
        FROM (SELECT DISTINCT session, piece FROM in_order) a
            JOIN (SELECT DISTINCT session, piece FROM in_order) b ON b.session = a.session AND b.piece >= a.piece
            JOIN in_order o ON o.session = a.session AND o.piece BETWEEN a.piece AND b.piece
        GROUP BY ALL
    ) GROUP BY ALL
) LEFT JOIN timers t USING (session, held) WHERE arrived = 100 OR t.session IS NOT NULL GROUP BY session, first_piece;

CREATE TEMP TABLE lives AS
WITH RECURSIVE chain AS (
    SELECT DISTINCT session, CAST(0 AS HUGEINT) AS life FROM in_order
    UNION ALL
    SELECT session, e.last_piece + 1 FROM chain c JOIN ends_of_spans e USING (session)
    WHERE e.first_piece = c.life AND EXISTS (FROM in_order o WHERE o.session = c.session AND o.piece > e.last_piece)
)
SELECT session, CAST(life AS BIGINT) AS life FROM chain;

CREATE TEMP TABLE ordered_events AS
SELECT o.session, l.life, seq, pos, value, scheduled_at, turn
FROM in_order o ASOF JOIN lives l ON o.session = l.session AND o.piece >= l.life;

DELETE FROM first_events WHERE session IN (FROM asked);

INSERT INTO first_events
SELECT session, life, seq, arg_min(pos, turn), min(turn), arg_min(value, turn), arg_min(scheduled_at, turn), count(*)
FROM ordered_events GROUP BY session, life, seq;
