-- Finds the sessions, and the events that are not accepted.
-- Needs: events, first_events, ordered_events, committed. Makes: lives_of_sessions, sessions, invalid_events.
-- Changes: first_events.

-- A session is finished when all 100 events have arrived. It is covered when the pipeline has committed the offset of each of
-- its events, in whatever partition the event is.
CREATE TEMP TABLE lives_of_sessions AS
SELECT session, life, CAST(sum(events) AS INTEGER) AS arrived, arg_max(last_pos, last_turn) AS last_pos,
    max(last_turn) AS last_turn, max(ended_at) AS ended_at, bool_and(offset_of(last_pos) < coalesce(c.below, 0)) AS covered
FROM (
    SELECT session, life, partition_of(pos) AS partition, count(*) AS events, max(pos) AS last_pos,
        max(turn) AS last_turn, max(scheduled_at) FILTER (seq = 99) AS ended_at
    FROM first_events GROUP BY ALL
) LEFT JOIN committed c USING (partition) GROUP BY session, life;

-- Of several sessions with one key the first finished one counts. `begun`: one of them is not finished.
CREATE TEMP TABLE sessions AS
SELECT s.*, s.arrived = 100 AS finished, o.begun FROM lives_of_sessions s JOIN (
    SELECT session, arg_min(life, CASE WHEN arrived = 100 THEN life ELSE life + 1000000000000 END) AS life,
        bool_or(arrived < 100) AS begun
    FROM lives_of_sessions GROUP BY session
) o ON o.session = s.session AND o.life = s.life;

-- Invalid by itself; or valid, but repeated in its session, or after the session's end.
CREATE TEMP TABLE invalid_events AS
SELECT pos, reason FROM events WHERE reason IS NOT NULL
UNION ALL
SELECT o.pos, CASE WHEN s.arrived = 100 AND o.turn > s.last_turn THEN 'after-end' ELSE 'repeated-seq' END
FROM (SELECT * FROM ordered_events ANTI JOIN first_events USING (session, life, seq, pos)) o
    JOIN lives_of_sessions s ON s.session = o.session AND s.life = o.life;

-- What the quarantine's timers may have taken.
CREATE TEMP TABLE unfinished_lives AS
SELECT session, held_text(list((seq, value) ORDER BY seq)) AS held
FROM (SELECT * FROM first_events SEMI JOIN timers USING (session))
    SEMI JOIN (FROM lives_of_sessions WHERE arrived < 100) USING (session, life)
GROUP BY session, life;

DELETE FROM first_events WHERE session IN (SELECT session FROM lives_of_sessions WHERE life > 0)
    AND NOT EXISTS (FROM sessions s WHERE s.session = first_events.session AND s.life = first_events.life);
