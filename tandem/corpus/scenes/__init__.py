"""Composes the demo scenes: drawings in a stated arrangement, with captions in four languages."""
