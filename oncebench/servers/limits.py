"""How long a server of ours may take to start.

The limit is here once, for all servers and for the runs that wait for them.
"""

# 0.3 s (PostgreSQL) to 3 s (Kafka) on an idle laptop. While Spark used every core, a broker was seen to take 36 s, and
# JVMs of Spark more than 180 s. A server that ends while it starts is noticed at once, whatever the limit is.
SERVER_LIMIT_S = 300.0
