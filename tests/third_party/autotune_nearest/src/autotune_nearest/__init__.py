"""A third-party cost model for autotune."""
