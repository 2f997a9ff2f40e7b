-- Positions in a topic. Needs: input. Makes: input_repeated.

-- `pos` packs a partition and an offset into one number.
CREATE TEMP MACRO pos_of(partition_number, offset_number) AS partition_number * 17592186044416 + offset_number;
CREATE TEMP MACRO partition_of(packed) AS packed // 17592186044416;
CREATE TEMP MACRO offset_of(packed) AS packed % 17592186044416;

-- Positions that the file has more than once; the first row of each counts.
CREATE TEMP TABLE input_repeated AS
SELECT pos, min("at") AS first_at FROM input GROUP BY pos HAVING count(*) > 1;
