"""The settings of workloads.

They have a module of their own, so the suite can read them without Spark.
"""

# A session of 1 to 2 s becomes 11 to 21 windows, which is about as many rows as the workload `sessions` makes.
WINDOW_MS = 100
# How far the watermark stays behind the newest event. It must exceed `loadgen.workloads.MOST_AHEAD_US`.
DELAY_MS = 3_000
# Hexadecimal digits of a record's SHA-256 in its row: 60 bits, as many as fit into a signed integer of 64.
DIGEST_DIGITS = 15
