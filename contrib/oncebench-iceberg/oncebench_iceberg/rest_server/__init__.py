"""Parts of the REST catalog that a run starts (`oncebench_iceberg.server`)."""
