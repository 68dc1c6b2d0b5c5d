"""A third-party plugin for autotune."""
