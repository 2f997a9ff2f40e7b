-- The counts that only the workload `windows` has, as in counts.sql. Needs: windows.

-- name: events.late
SELECT sum(events) FROM windows WHERE late;
