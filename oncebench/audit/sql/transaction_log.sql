-- The output's log: who wrote each stretch, and how its transaction ended. Positions count, never totals.
-- Needs: log, run, final, observed, visible_rows. Makes: stretches, hidden_records, uncommitted_rows.

-- `fate` is null outside of transactions. `newest`: the newest generation before the stretch, in its partition.
CREATE TEMP TABLE stretches AS
SELECT pos AS first_pos, pos + last_offset - "offset" AS last_pos, records, generation,
    max(generation) OVER (
        PARTITION BY partition ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS newest,
    -- Without a later marker of its producer the transaction is open.
    CASE WHEN transactional THEN coalesce((
        SELECT arg_min(m.marker, m.pos) FROM log m
        WHERE m.marker IS NOT NULL AND m.partition = log.partition AND m.producer = log.producer AND m.pos > log.pos
    ), 'open') END AS fate
FROM log WHERE marker IS NULL;

CREATE TEMP TABLE hidden_records AS
SELECT fate, sum(records) AS records FROM (
    SELECT fate, records FROM stretches
    UNION ALL
    SELECT fate, -count(*) FROM visible_rows JOIN stretches ON pos BETWEEN first_pos AND last_pos GROUP BY fate
) GROUP BY fate;

-- An open transaction may have ended since, if the log was not read to its end or if only the observer saw the row.
CREATE TEMP TABLE uncommitted_rows AS
SELECT fate, count(*) AS rows FROM (SELECT pos FROM final UNION SELECT pos FROM observed)
    JOIN stretches ON pos BETWEEN first_pos AND last_pos WHERE fate = 'abort' GROUP BY fate
UNION ALL
SELECT fate, count(*) AS rows FROM visible_rows
    JOIN stretches ON pos BETWEEN first_pos AND last_pos
    WHERE fate = 'open' AND (SELECT log_whole FROM run) GROUP BY fate;
