-- Compares the quarantine with the invalid events. Needs: quarantine, input, keys, sessions, invalid_events.
-- Makes: quarantined, quarantine_faults.

-- A copy has the original's bytes, or, where its length shows that it was cut, the beginning of these bytes.
CREATE TEMP MACRO is_part(copy, length, original) AS CASE
    WHEN length IS NULL THEN copy IS NOT DISTINCT FROM original
    ELSE (octet_length(copy) < length AND octet_length(original) = length
        AND starts_with(hex(original), hex(copy))) IS TRUE
    END;

CREATE TEMP TABLE quarantined AS
SELECT key, value, key_bytes, value_bytes, reason,
    CASE WHEN source_partition BETWEEN 0 AND 524287 AND source_offset BETWEEN 0 AND 17592186044415
        THEN pos_of(source_partition, source_offset) END AS pos,
    -- The events of an unfinished session whose timer fired have no source position, and are no fault.
    (reason = 'never-ended' AND source_partition IS NULL AND source_offset IS NULL
        AND key IN (SELECT key FROM keys JOIN sessions USING (session) WHERE arrived < 100)) IS TRUE AS never_ended
FROM quarantine;

CREATE TEMP TABLE original_records AS
SELECT pos, arg_min({'key': key, 'value': value}, "at") AS record
FROM input SEMI JOIN quarantined USING (pos) SEMI JOIN invalid_events USING (pos) GROUP BY pos;

CREATE TEMP TABLE quarantine_faults AS
SELECT 'missing' AS kind, count(*) AS faults FROM (SELECT pos FROM invalid_events ANTI JOIN quarantined USING (pos))
UNION ALL
SELECT 'unasked', (SELECT count(DISTINCT pos) FROM quarantined ANTI JOIN invalid_events USING (pos))
    + (SELECT count(*) FROM quarantined WHERE pos IS NULL AND NOT never_ended)
UNION ALL
SELECT 'changed', count(DISTINCT pos) FROM quarantined JOIN original_records o USING (pos)
    WHERE NOT is_part(key, key_bytes, o.record.key) OR NOT is_part(value, value_bytes, o.record.value);
