"""Power cuts: every state in which one may leave the file sinks' disk, built, read, and given to a successor."""
