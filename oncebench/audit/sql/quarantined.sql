-- Reads the quarantine: the position that each copy names. The bytes are not kept.
-- Needs: quarantine. Makes: quarantined, timers.

CREATE TEMP TABLE quarantined AS
SELECT reason, "at",
    CASE WHEN source_partition BETWEEN 0 AND 524287 AND source_offset BETWEEN 0 AND 17592186044415
        THEN pos_of(source_partition, source_offset) END AS pos,
    (reason = 'never-ended' AND source_partition IS NULL AND source_offset IS NULL) IS TRUE AS of_timer,
    -- Without spaces, as divided.sql writes the values of a session.
    CASE WHEN of_timer THEN replace(try(decode(value)), ' ', '') END AS held,
    CASE WHEN of_timer THEN key END AS of_key
FROM quarantine;

-- The sessions that left the state unfinished, by their timer.
CREATE TEMP TABLE timers AS
SELECT DISTINCT k.session, held FROM quarantined q JOIN keys k ON k.key = q.of_key WHERE of_timer;
