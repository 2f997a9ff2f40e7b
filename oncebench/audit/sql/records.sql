-- Finds the events of the workload `records`, and the row of each, in place of sessions.
-- Needs: read_records, committed. Makes: keys, events, record_rows, sessions, invalid_events, unfinished_lives.

-- In the ledger, event n is event n % 100 of session n // 100. A row has the id of its event.
CREATE TEMP MACRO planned_key(load, n) AS load || '-' || printf('%08d', n // 100);

CREATE TEMP TABLE keys AS
SELECT CAST(NULL AS BLOB) AS key, session_key, CAST(row_number() OVER () AS INTEGER) AS session FROM (
    SELECT planned_key(load, n) AS session_key FROM read_records WHERE valid UNION SELECT id FROM read_records WHERE valid
);

CREATE TEMP TABLE events AS
SELECT pos, k.session, CASE WHEN valid THEN CAST(n % 100 AS UTINYINT) END AS seq, CAST(0 AS INTEGER) AS value, scheduled_at,
    CASE WHEN NOT valid THEN 'wrong-fields' END AS reason
FROM read_records LEFT JOIN keys k ON valid AND k.session_key = planned_key(load, n);

-- Of several events with one id the first one counts.
CREATE TEMP TABLE record_rows AS
SELECT k.session, min(pos) AS pos, arg_min(size, pos) AS total, arg_min(digest, pos) AS checksum,
    arg_min(scheduled_at, pos) AS ended_at
FROM read_records JOIN keys k ON k.session_key = id WHERE valid GROUP BY k.session;

CREATE TEMP TABLE sessions AS
SELECT session, CAST(0 AS BIGINT) AS life, pos AS last_pos, ended_at, true AS finished, false AS begun,
    offset_of(pos) < coalesce(c.below, 0) AS covered
FROM record_rows LEFT JOIN committed c ON c.partition = partition_of(pos);

CREATE TEMP TABLE invalid_events AS SELECT pos, reason FROM events WHERE reason IS NOT NULL;

-- No timer takes a record from a state.
CREATE TEMP TABLE unfinished_lives AS SELECT session, CAST(NULL AS VARCHAR) AS held FROM sessions WHERE false;
