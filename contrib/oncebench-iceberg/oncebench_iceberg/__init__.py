"""An Iceberg sink for oncebench: tasks write Parquet files, the driver commits one snapshot per batch."""
