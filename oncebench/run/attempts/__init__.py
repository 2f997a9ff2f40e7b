"""The attempts of the pipeline, from each start to each death: faults, random kills and restarts."""
