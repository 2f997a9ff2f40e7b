"""What several commands share: options, interruption, failed runs."""
