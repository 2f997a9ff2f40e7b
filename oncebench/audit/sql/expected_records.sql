-- The expected row of each event of the workload `records`. Needs: record_rows, sessions.
SELECT session, CAST(0 AS BIGINT) AS j, CAST(1 AS BIGINT) AS events, r.total, r.checksum, s.ended_at, s.covered
FROM record_rows r JOIN sessions s USING (session)
