"""Builds, snapshots, checks and tunes indexes in the background."""
