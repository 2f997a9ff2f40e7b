"""The load generator: sends sessions of 100 events to Kafka on a schedule fixed in advance.

It depends on Kafka and the clock only, not on Spark, sinks or verdicts. It promises:

- open loop: every event gets its scheduled time before the first event is sent, and carries it;
- deterministic: the same seed, rate, sessions and shape make the same events in the same order;
- a ledger: for every event, whether it was attempted and whether Kafka acknowledged it. The ledger survives a kill.

Start it as a process (`python -m loadgen CONFIG.json`) or call `loadgen.producer.run_load`.
"""
