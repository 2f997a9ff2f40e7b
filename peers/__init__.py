"""Other engines that do the pipeline's work. Their runs are rows of the same tables."""
