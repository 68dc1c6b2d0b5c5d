"""A third-party plugin for an autotune of before."""
