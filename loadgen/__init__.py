"""The load generator: sessions of 100 events, sent to Kafka on a schedule that was fixed in advance.

It knows Kafka and time; it knows nothing of Spark, of sinks or of verdicts. What it promises:

- open loop: every event has a scheduled time before the first one is sent, and carries it;
- deterministic: the same seed, rate, sessions and shape make the same bytes in the same order;
- a ledger: for every event what was attempted and what Kafka acknowledged; it survives a kill.

Start it as a process (`python -m loadgen CONFIG.json`) or call `loadgen.producer.run_load`.
"""
