-- Finds the windows of the workload `windows`, in place of sessions.
-- Needs: events, keys, ledger, run, committed, batch_ends. Makes: windows, sessions, invalid_events, unfinished_lives.
-- Changes: keys.

-- A slot is a window's number since 1970. The numbers of windows follow those of keys. A window is late if it ended 55
-- minutes before the newest event of its key, or before the load.
CREATE TEMP TABLE windows AS
SELECT session AS key, scheduled_at // 100000 AS slot, (slot + 1) * 100000 AS ended_at, count(*) AS events,
    ended_at <= greatest(max(max(scheduled_at)) OVER (PARTITION BY session), (SELECT started_us FROM run)) - 3300000000
        AS late,
    CAST(sum(value) AS BIGINT) AS total, CAST(sum((seq + 1) * (value + 1)) AS BIGINT) AS checksum,
    CAST((SELECT coalesce(max(session), 0) FROM keys) + row_number() OVER () AS INTEGER) AS number
FROM events WHERE reason IS NULL GROUP BY session, slot;

INSERT INTO keys
SELECT NULL, k.session_key || '@' || w.slot * 100, w.number FROM windows w JOIN keys k ON k.session = w.key;

-- The first batch whose end is beyond an event has read it.
CREATE TEMP TABLE window_readers AS
SELECT partition, below, min(number) AS number FROM (
    SELECT number, partition, max(below) OVER (PARTITION BY partition ORDER BY number) AS below FROM batch_ends
) GROUP BY partition, below;

CREATE TEMP TABLE reading_batches AS
SELECT r.number, max(scheduled_at) AS newest, max(pos) AS last_pos
FROM (SELECT pos, scheduled_at, partition_of(pos) AS partition, offset_of(pos) AS "offset" FROM events WHERE reason IS NULL) e
    ASOF JOIN window_readers r ON e.partition = r.partition AND e."offset" < r.below
GROUP BY r.number;

-- A batch returns the windows that the watermark passed in the batch before it.
CREATE TEMP TABLE returning_batches AS
SELECT newest, arg_min(next_number, number) AS number FROM (
    SELECT b.number, lead(b.number) OVER (ORDER BY b.number) AS next_number,
        max(newest) OVER (ORDER BY b.number) AS newest
    FROM (SELECT DISTINCT number FROM batch_ends) b LEFT JOIN reading_batches r ON r.number = b.number
) WHERE newest IS NOT NULL GROUP BY newest;

-- A window that begins after the last planned event stays open. The watermark is 3 s behind the newest event. A window
-- without a known batch has a position after all events.
CREATE TEMP TABLE sessions AS
SELECT number AS session, life, last_pos, ended_at, finished, NOT finished AS begun,
    offset_of(last_pos) < coalesce(c.below, 0) AS covered
FROM (
    SELECT w.number, CAST(0 AS BIGINT) AS life, w.ended_at,
        NOT w.late AND w.slot * 100000 <= (SELECT coalesce(max(scheduled_us), 0) FROM ledger) AS finished,
        coalesce(b.last_pos, (SELECT max(pos) + 1 FROM events WHERE reason IS NULL)) AS last_pos
    FROM windows w ASOF LEFT JOIN returning_batches r ON w.ended_at + 3000000 <= r.newest
        LEFT JOIN reading_batches b ON b.number = r.number
) LEFT JOIN committed c ON c.partition = partition_of(last_pos);

CREATE TEMP TABLE invalid_events AS SELECT pos, reason FROM events WHERE reason IS NOT NULL;

-- No timer takes a window from the state.
CREATE TEMP TABLE unfinished_lives AS SELECT session, CAST(NULL AS VARCHAR) AS held FROM sessions WHERE false;
