-- The copies in quarantine of invalid events, each with its original, in the order of the originals.
-- Needs: input, input_repeated, quarantined, invalid_events.
SELECT i.pos, i."at" AS original, q."at" AS copy
FROM (SELECT pos, "at" FROM input) i JOIN quarantined q ON q.pos = i.pos SEMI JOIN invalid_events v ON v.pos = i.pos
    LEFT JOIN input_repeated r ON r.pos = i.pos
WHERE coalesce(r.first_at = i."at", true) ORDER BY original;
