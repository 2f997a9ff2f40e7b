"""The second auditor: counts what the first one counts, from the files themselves, in SQL, with no code in common."""
