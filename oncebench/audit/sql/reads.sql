-- Compares the two reads of the output, and finds partitions whose last stable offset is stuck.
-- Needs: final, final_repeated, observed, read_to, run, ends, open_transactions.
-- Makes: inconsistent_positions, stuck_partitions.

-- A long key or value takes part by its digest, so no join holds it.
CREATE TEMP MACRO brief(content, content_sum) AS
CASE WHEN octet_length(content) <= 200 THEN content ELSE encode(coalesce(content_sum, sha256(content))) END;

CREATE TEMP TABLE observed_repeated AS
SELECT pos, first("at" ORDER BY seen_us, "at") AS first_at FROM observed GROUP BY pos HAVING count(*) > 1;

-- Kind 1: the two reads have different content. Kind 2: only the earlier read has the position. Kinds 3 and 4: the final
-- read, or the observer, has two contents. Of two contents in one read the first in the file counts, for the observer
-- the first by time. Of several kinds the lowest counts.
CREATE TEMP TABLE inconsistent_positions AS
SELECT pos, min(kind) AS kind FROM (
    SELECT f.pos, 1 AS kind FROM (SELECT pos, "at", brief(key, key_sum) AS key, brief(value, value_sum) AS value FROM final) f
        JOIN (SELECT pos, "at", brief(key, key_sum) AS key, brief(value, value_sum) AS value FROM observed) o ON o.pos = f.pos
        LEFT JOIN final_repeated fr ON fr.pos = f.pos LEFT JOIN observed_repeated obr ON obr.pos = o.pos
    WHERE coalesce(fr.first_at = f."at", true) AND coalesce(obr.first_at = o."at", true)
        AND (f.key IS DISTINCT FROM o.key OR f.value IS DISTINCT FROM o.value)
    UNION ALL
    SELECT o.pos, 2 FROM observed o LEFT JOIN read_to r ON r.partition = o.partition ANTI JOIN final USING (pos)
    WHERE o."offset" < coalesce(r.below, (SELECT below FROM run))
    UNION ALL
    SELECT pos, 3 FROM (SELECT * FROM final SEMI JOIN final_repeated USING (pos))
    GROUP BY pos HAVING count(DISTINCT {'key': brief(key, key_sum), 'value': brief(value, value_sum)}) > 1
    UNION ALL
    SELECT pos, 4 FROM (SELECT * FROM observed SEMI JOIN observed_repeated USING (pos))
    GROUP BY pos HAVING count(DISTINCT {'key': brief(key, key_sum), 'value': brief(value, value_sum)}) > 1
) GROUP BY pos;

-- KIP-664: a transaction hangs if its coordinator runs none in that partition, or has not ended it 10 s after its
-- timeout. `hanging` is null without a recorded transaction.
CREATE TEMP TABLE stuck_partitions AS
SELECT e.partition, bool_or(
    state IS NULL OR state NOT IN ('Ongoing', 'PrepareCommit', 'PrepareAbort', 'PrepareEpochFence') OR NOT here
    OR started_ms + timeout_ms + 10000 < asked_ms
) FILTER (o.partition IS NOT NULL) AS hanging
FROM ends e LEFT JOIN open_transactions o ON o.partition = e.partition WHERE lso < hw GROUP BY e.partition;
