"""Every engine under every guarantee on the same work, as one table."""
