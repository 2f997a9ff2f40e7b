"""Power cuts: checks every disk state that a power cut may leave of the file sinks."""
