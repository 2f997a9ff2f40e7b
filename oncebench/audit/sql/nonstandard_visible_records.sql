-- As nonstandard_rows.sql, for rows with a field `record`. Needs: keys, parsed. Changes: visible_rows.

-- name: rows
SELECT nonstandard FROM visible_rows WHERE nonstandard IS NOT NULL ORDER BY nonstandard;

-- name: remove
DELETE FROM visible_rows WHERE nonstandard IS NOT NULL;

-- name: enter
INSERT INTO visible_rows
SELECT p.pos, CASE WHEN p.j IS NOT NULL THEN k.session END,
    CASE WHEN k.session IS NULL AND p.j IS NOT NULL THEN p.session_key END,
    CASE WHEN p.session_key IS NOT NULL THEN p.j END, p.events, p.total, p.checksum, p.ended_at,
    (p.size = 7 AND p.present = 7 AND p.session_key IS NOT NULL AND p.j IS NOT NULL AND p.events IS NOT NULL
        AND p.ended_at IS NOT NULL AND p.total = octet_length(encode(p.record)) AND p.checksum = digest_of(p.record))
        IS TRUE AS whole,
    encode(p.session_key) = p.record_key, NULL, CASE WHEN NOT whole THEN sha256(p.raw) END
FROM parsed p LEFT JOIN keys k ON k.session_key = p.session_key;
