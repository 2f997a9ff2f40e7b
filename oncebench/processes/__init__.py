"""Child processes that always end, even if the suite itself is killed."""
