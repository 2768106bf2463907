"""The real controller under a schedule: one action of the alphabet at a time."""
