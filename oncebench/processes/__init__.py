"""Child processes that are always ended, even when the suite itself is killed."""
