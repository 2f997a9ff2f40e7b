"""The Spark session of the pipeline: settings, workers, temporary files."""
