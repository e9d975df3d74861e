"""Scripts that measure other systems, each in its own environment."""
