-- Compares the quarantine with the invalid events. Needs: quarantined, changed_copies, keys, invalid_events,
-- unfinished_lives. Makes: quarantine_faults.

-- The events of an unfinished session whose timer fired have no source position, and are no fault.
CREATE TEMP TABLE unasked_timers AS
SELECT count(*) AS records FROM quarantined q LEFT JOIN keys k ON k.key = q.of_key
    ANTI JOIN unfinished_lives u ON u.session = k.session AND u.held = q.held WHERE of_timer;

CREATE TEMP TABLE quarantine_faults AS
SELECT 'missing' AS kind, count(*) AS faults FROM (SELECT pos FROM invalid_events ANTI JOIN quarantined USING (pos))
UNION ALL
SELECT 'unasked', (SELECT count(DISTINCT pos) FROM quarantined ANTI JOIN invalid_events USING (pos))
    + (SELECT count(*) FROM quarantined WHERE pos IS NULL AND NOT of_timer) + (SELECT records FROM unasked_timers)
UNION ALL
SELECT 'changed', count(DISTINCT pos) FROM changed_copies;
