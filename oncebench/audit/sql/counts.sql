-- The counts, one query each, under the names of the anomaly codes and their kinds.


-- The output.

-- name: LOSS
SELECT sum(wanted - rows) FROM visible_per_session WHERE covered AND NOT accepted;

-- name: GAP-ROWS
SELECT sum(wanted - rows) FROM visible_per_session WHERE covered AND accepted;

-- name: LOSS.whole-sessions
SELECT sum(wanted) FROM visible_per_session WHERE covered AND NOT accepted AND rows = 0;

-- name: LOSS.torn-sessions
SELECT sum(wanted - rows) FROM visible_per_session WHERE covered AND NOT accepted AND rows > 0;

-- name: PEND
SELECT sum(wanted - rows) FROM visible_per_session WHERE NOT covered;

-- name: TORN
SELECT count(*) FROM visible_per_session WHERE covered AND NOT accepted AND rows > 0 AND rows < wanted;

-- name: DUP
SELECT sum(copies - 1) FROM row_ids;

-- name: DUP.same-partition
SELECT sum(copies - 1) FROM row_copies;

-- name: DUP.other-partition
SELECT (SELECT count(*) FROM row_copies) - (SELECT count(*) FROM row_ids);

-- name: PHAN
SELECT count(*) FROM row_ids WHERE NOT expected;

-- name: PHAN.unknown-session
SELECT count(*) FROM row_ids ANTI JOIN sessions USING (session);

-- name: PHAN.unfinished-session
SELECT count(*) FROM row_ids JOIN sessions USING (session) WHERE NOT finished;

-- name: PHAN.row-number
SELECT count(*) FROM row_ids JOIN sessions USING (session) WHERE finished AND NOT expected;

-- name: DIV
-- Payloads that cannot be read are compared by digests of their bytes.
SELECT count(*) FROM (
    SELECT session, j FROM visible_rows JOIN row_ids USING (session, j) WHERE row_ids.copies > 1 GROUP BY session, j
    HAVING count(DISTINCT CASE WHEN parsed THEN {'events': events, 'total': total, 'checksum': checksum,
        'ended_at': ended_at, 'content': content} ELSE {'events': NULL, 'total': NULL, 'checksum': NULL,
        'ended_at': NULL, 'content': content} END) > 1
);

-- name: CORR
SELECT count(*) FROM visible_rows v LEFT JOIN expected_rows e USING (session, j)
WHERE parsed IS NOT TRUE OR keyed IS NOT TRUE OR e.session IS NOT NULL AND (
    v.events <> e.events OR v.total <> e.total OR v.checksum <> e.checksum OR v.ended_at <> e.ended_at);

-- name: CORR.unreadable
SELECT count(*) FROM visible_rows WHERE parsed IS NOT TRUE;

-- name: CORR.wrong-key
SELECT count(*) FROM visible_rows WHERE parsed AND keyed IS NOT TRUE;

-- name: CORR.wrong-payload
SELECT count(*) FROM visible_rows v JOIN expected_rows e USING (session, j) WHERE parsed AND keyed AND (
    v.events <> e.events OR v.total <> e.total OR v.checksum <> e.checksum OR v.ended_at <> e.ended_at);

-- name: REORD
SELECT count(DISTINCT session) FROM (
    SELECT session, first_pos < lag(first_pos) OVER (PARTITION BY session, partition ORDER BY j) AS back
    FROM row_copies SEMI JOIN expected_rows USING (session, j)
) WHERE back;

-- name: SCAT
SELECT count(*) FROM (
    SELECT session FROM visible_rows SEMI JOIN expected_rows USING (session, j)
    WHERE (SELECT is_log FROM run) GROUP BY session HAVING count(DISTINCT partition_of(pos)) > 1
);

-- name: TORNB
-- In a sink that shows a batch in one step: batches whose rows were not all first seen at the same look.
SELECT count(*) FROM (
    SELECT batch FROM (
        SELECT session, j, min(seen_us) AS seen_us FROM visible_rows JOIN observed USING (pos)
            SEMI JOIN expected_rows USING (session, j) WHERE seen_us > 0 GROUP BY session, j
    ) JOIN sessions s USING (session) JOIN batch_ranges b ON b.partition = partition_of(s.last_pos)
        AND offset_of(s.last_pos) >= b.start AND offset_of(s.last_pos) < b.below
    WHERE (SELECT at_once FROM run) GROUP BY batch HAVING count(DISTINCT seen_us) > 1
);

-- name: LOSTC
SELECT count(DISTINCT batch) FROM visible_per_session v JOIN sessions s USING (session)
    JOIN batch_ranges b ON b.partition = partition_of(s.last_pos)
        AND offset_of(s.last_pos) >= b.start AND offset_of(s.last_pos) < b.below
WHERE b.reported AND v.covered AND NOT v.accepted AND v.rows < v.wanted;

-- name: rows.expected
SELECT count(*) FROM expected_rows;

-- name: rows.visible
SELECT count(*) FROM visible_rows;

-- name: rows.visible_distinct
SELECT sum(rows) FROM visible_per_session;

-- name: sessions.finished
SELECT count(*) FROM sessions WHERE finished;

-- name: sessions.unfinished
SELECT count(*) FROM sessions WHERE begun;

-- name: sessions.visible
SELECT count(*) FROM visible_per_session WHERE rows = wanted;

-- name: sessions.lost
SELECT count(*) FROM visible_per_session WHERE rows = 0 AND covered AND NOT accepted;


-- The input, the quarantine, the reads and their ends.

-- name: SRC
SELECT count(*) FROM ledger_events
WHERE acked AND NOT (copies = 0 AND named) AND (copies <> 1 OR acked_pos IS NOT NULL AND acked_pos <> pos);

-- name: SRC.absent
SELECT count(*) FROM ledger_events WHERE acked AND copies = 0 AND NOT named;

-- name: GAP-EVENTS
SELECT count(*) FROM ledger_events WHERE acked AND copies = 0 AND named;

-- name: SRC.twice
SELECT count(*) FROM ledger_events WHERE acked AND copies > 1;

-- name: SRC.elsewhere
SELECT count(*) FROM ledger_events WHERE acked AND copies = 1 AND acked_pos <> pos;

-- name: QUAR
SELECT sum(faults) FROM quarantine_faults;

-- name: QUAR.missing
SELECT faults FROM quarantine_faults WHERE kind = 'missing';

-- name: QUAR.unasked
SELECT faults FROM quarantine_faults WHERE kind = 'unasked';

-- name: QUAR.changed
SELECT faults FROM quarantine_faults WHERE kind = 'changed';

-- name: INCO
SELECT count(*) FROM inconsistent_positions;

-- name: INCO.changed
SELECT count(*) FROM inconsistent_positions WHERE kind = 1;

-- name: INCO.vanished
SELECT count(*) FROM inconsistent_positions WHERE kind = 2;

-- name: INCO.final-read-twice
SELECT count(*) FROM inconsistent_positions WHERE kind = 3;

-- name: INCO.observed-twice
SELECT count(*) FROM inconsistent_positions WHERE kind = 4;

-- name: STALL-LSO
SELECT count(*) FROM ends WHERE lso < hw;

-- name: STALL-LSO.hanging
SELECT count(*) FROM stuck_partitions WHERE hanging;

-- name: STALL-LSO.delayed
SELECT count(*) FROM stuck_partitions WHERE NOT hanging;

-- name: STALL-LSO.untold
SELECT count(*) FROM stuck_partitions WHERE hanging IS NULL;

-- name: sessions.acknowledged
SELECT count(*) FROM (SELECT session FROM ledger GROUP BY session HAVING bool_and(acked_us > 0));

-- name: events.in_topic
SELECT count(*) FROM events;

-- name: events.invalid
SELECT count(*) FROM invalid_events;

-- name: events.foreign
SELECT count(*) - (SELECT coalesce(sum(copies), 0) FROM ledger_events) FROM events;

-- name: events.quarantined
SELECT count(*) FROM quarantine;

-- name: events.quarantined_for_another_reason
SELECT count(*) FROM quarantined JOIN invalid_events i USING (pos) WHERE quarantined.reason IS DISTINCT FROM i.reason;


-- The log.

-- name: EXPO
SELECT sum(records) FROM hidden_records;

-- name: EXPO.committed
SELECT sum(records) FROM hidden_records WHERE fate = 'commit';

-- name: EXPO.aborted
SELECT sum(records) FROM hidden_records WHERE fate = 'abort';

-- name: EXPO.open
SELECT sum(records) FROM hidden_records WHERE fate = 'open';

-- name: EXPO.plain
SELECT sum(records) FROM hidden_records WHERE fate IS NULL;

-- name: G1a
SELECT sum(rows) FROM uncommitted_rows;

-- name: G1a.aborted
SELECT sum(rows) FROM uncommitted_rows WHERE fate = 'abort';

-- name: G1a.open
SELECT sum(rows) FROM uncommitted_rows WHERE fate = 'open';

-- name: STALE
SELECT count(*) FROM visible_rows JOIN stretches ON pos BETWEEN first_pos AND last_pos
WHERE generation < newest;
