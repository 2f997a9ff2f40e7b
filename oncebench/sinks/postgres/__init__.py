"""PostgreSQL sink: exactly-once by prepared transactions or a ledger table."""
