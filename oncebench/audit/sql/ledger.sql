-- Compares the input topic with the generator's ledger. An event is the generator's own if the ledger has its session,
-- seq and scheduled time, and it was sent. Every other event is foreign, and no fault.
-- `accepted`: an operator has accepted that the record at this position is missing.
-- Needs: ledger, accepted_offsets, run, keys, events, first_events, repeated_events. Makes: ledger_events.

CREATE TEMP TABLE planned_sessions AS
SELECT number, k.session FROM (
    SELECT number, (SELECT prefix FROM run) || printf('%08d', number) AS session_key
    FROM (SELECT DISTINCT session AS number FROM ledger)
) JOIN keys k USING (session_key);

-- Several events with one (session, seq) are distinguished by their scheduled time.
CREATE TEMP TABLE repeated_by_schedule AS
SELECT e.session, e.seq, e.scheduled_at, count(*) AS copies, min(e.pos) AS pos
FROM events e JOIN repeated_events r ON r.session = e.session AND r.seq = e.seq
WHERE e.reason IS NULL GROUP BY ALL;

CREATE TEMP TABLE ledger_events AS
SELECT l.acked_us > 0 AS acked,
    EXISTS (FROM accepted_offsets a
        WHERE a.partition = l.partition AND l."offset" BETWEEN a.first AND a.last) AS named,
    CASE WHEN l."offset" >= 0 THEN pos_of(l.partition, l."offset") END AS acked_pos,
    CASE WHEN f.copies = 1 THEN f.pos ELSE r.pos END AS pos,
    CASE WHEN l.sent_us > 0 IS NOT TRUE THEN 0 WHEN f.copies = 1 THEN CAST(f.scheduled_at = l.scheduled_us AS INTEGER)
        ELSE coalesce(r.copies, 0) END AS copies
FROM ledger l LEFT JOIN planned_sessions p ON p.number = l.session
    LEFT JOIN first_events f ON f.session = p.session AND f.seq = l.seq
    LEFT JOIN repeated_by_schedule r ON r.session = p.session AND r.seq = l.seq AND r.scheduled_at = l.scheduled_us;
