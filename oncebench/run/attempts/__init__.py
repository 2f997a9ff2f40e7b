"""The attempts of the pipeline, from start to death: faults, random kills and restarts."""
