-- The counts that only the workload `windows` has, as in counts.sql. Needs: windows, run.

-- name: events.late
SELECT sum(events) FROM windows WHERE ended_at <= (SELECT started_us FROM run) - 1800000000;
