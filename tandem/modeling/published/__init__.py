"""Reads checkpoints that others published: files, weights, vocabulary."""
