-- The expected row of each window.
-- Needs: windows, sessions.
SELECT s.session, CAST(0 AS BIGINT) AS j, w.events, w.total, w.checksum, s.ended_at, s.covered
FROM windows w JOIN sessions s ON s.session = w.number WHERE s.finished
