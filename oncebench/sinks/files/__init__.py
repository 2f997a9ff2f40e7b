"""File sinks: JSON lines and Parquet, committed by rename."""
