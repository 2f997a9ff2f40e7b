-- Counts the copies of each row id, (session, j), and the visible expected rows of each session.
-- Needs: visible_rows, expected_rows, sessions, batch_ranges, accepted_batches. Makes: row_copies, row_ids,
-- visible_per_session.

-- A session key that the input does not have gets a number below 0, so that phantoms are counted like other rows.
CREATE TEMP TABLE unknown_keys AS
SELECT unknown_key, -row_number() OVER () AS session
FROM (SELECT DISTINCT unknown_key FROM visible_rows WHERE unknown_key IS NOT NULL);

UPDATE visible_rows SET session = u.session FROM unknown_keys u WHERE u.unknown_key = visible_rows.unknown_key;

CREATE TEMP TABLE row_copies AS
SELECT session, j, partition_of(pos) AS partition, min(pos) AS first_pos, count(*) AS copies
FROM visible_rows WHERE j IS NOT NULL GROUP BY ALL;

CREATE TEMP TABLE row_ids AS
SELECT session, j, CAST(sum(copies) AS BIGINT) AS copies, e.session IS NOT NULL AS expected
FROM row_copies LEFT JOIN expected_rows e USING (session, j) GROUP BY ALL;

-- `wanted`: how many rows the session has. `accepted`: an operator has accepted that rows of the session's batch are missing.
CREATE TEMP TABLE accepted_sessions AS
SELECT DISTINCT s.session FROM sessions s JOIN batch_ranges b ON b.partition = partition_of(s.last_pos)
    AND offset_of(s.last_pos) >= b.start AND offset_of(s.last_pos) < b.below SEMI JOIN accepted_batches USING (batch);

CREATE TEMP TABLE visible_per_session AS
SELECT v.*, a.session IS NOT NULL AS accepted FROM (
    SELECT e.session, e.covered, count(i.copies) AS rows, count(*) AS wanted
    FROM expected_rows e LEFT JOIN row_ids i USING (session, j) GROUP BY ALL
) v LEFT JOIN accepted_sessions a USING (session);
