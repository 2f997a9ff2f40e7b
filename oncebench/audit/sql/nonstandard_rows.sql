-- Replaces the nonstandard rows by what Python parsed. A value that is not parsed keeps its bytes in `nonstandard`.
-- Needs: final, keys, visible_rows, parsed_rows. Changes: visible_rows.

CREATE TEMP TABLE checked_rows AS
SELECT p.pos, CASE WHEN p.j IS NOT NULL THEN k.session END AS session,
    CASE WHEN k.session IS NULL AND p.j IS NOT NULL THEN p.session_key END AS unknown_key,
    CASE WHEN p.session_key IS NOT NULL THEN p.j END AS j, p.events, p.total, p.checksum, p.ended_at,
    p.size = 6 AND p.present = 6 AND p.session_key IS NOT NULL AND p.j IS NOT NULL AND p.events IS NOT NULL
        AND p.total IS NOT NULL AND p.checksum IS NOT NULL AND p.ended_at IS NOT NULL AS whole,
    encode(p.session_key) = f.key AS keyed, CASE WHEN NOT whole THEN v.nonstandard END AS nonstandard
FROM parsed_rows p JOIN visible_rows v ON v.pos = p.pos
    JOIN (SELECT pos, arg_min(key, "at") AS key FROM final SEMI JOIN parsed_rows USING (pos) GROUP BY pos) f
        ON f.pos = p.pos
    LEFT JOIN keys k ON k.session_key = p.session_key;

DELETE FROM visible_rows WHERE nonstandard IS NOT NULL;

INSERT INTO visible_rows SELECT * FROM checked_rows;
