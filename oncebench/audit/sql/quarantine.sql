-- Compares the quarantine with the invalid events. Needs: quarantined, input, input_repeated, keys, invalid_events,
-- unfinished_lives. Makes: quarantine_faults.

-- A copy has the original's bytes, or, where its length shows that it was cut, the beginning of these bytes.
CREATE TEMP MACRO is_copy(original, copy_sum, copy_size, whole_size) AS CASE
    WHEN whole_size IS NULL THEN sha256(original) IS NOT DISTINCT FROM copy_sum
    ELSE (copy_size < whole_size AND octet_length(original) = whole_size
        AND sha256(left(hex(original), 2 * copy_size)) = copy_sum) IS TRUE
END;

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
SELECT 'changed', count(DISTINCT i.pos) FROM input i JOIN quarantined q ON q.pos = i.pos
        SEMI JOIN invalid_events v ON v.pos = i.pos LEFT JOIN input_repeated r ON r.pos = i.pos
    WHERE coalesce(r.first_at = i."at", true)
        AND NOT (is_copy(i.key, q.key_sum, q.key_size, q.key_bytes)
            AND is_copy(i.value, q.value_sum, q.value_size, q.value_bytes));
