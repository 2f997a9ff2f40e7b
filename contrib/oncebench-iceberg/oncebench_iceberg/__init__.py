"""An Iceberg sink for oncebench: tasks write files, the driver commits a batch at once."""
