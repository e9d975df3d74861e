"""Decides which candidates the cross-encoder reads, and how long it may take."""
