-- The 20 expected rows of each finished session: row j covers the events 5j..5j+4.
-- Needs: first_events, sessions. `text` is the input of the checksum, because SQL has no CRC-32.
SELECT session, j, CAST(5 AS BIGINT) AS events, total, encode(concat(5 * j, '=', v0, ';', 5 * j + 1, '=', v1, ';', 5 * j + 2, '=', v2, ';',
    5 * j + 3, '=', v3, ';', 5 * j + 4, '=', v4, ';')) AS text, ended_at, covered
FROM (
    SELECT session, CAST(seq // 5 AS BIGINT) AS j, CAST(sum(value) AS BIGINT) AS total,
        max(value) FILTER (seq % 5 = 0) AS v0, max(value) FILTER (seq % 5 = 1) AS v1,
        max(value) FILTER (seq % 5 = 2) AS v2, max(value) FILTER (seq % 5 = 3) AS v3,
        max(value) FILTER (seq % 5 = 4) AS v4
    FROM first_events GROUP BY session, seq // 5
) JOIN sessions USING (session) WHERE arrived = 100
