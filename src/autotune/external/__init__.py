"""Programs that only their own tools understand: tuned by their parameters alone."""
