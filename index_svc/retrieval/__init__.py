"""Finds the nearest embeddings: FAISS, exact scan, filters."""
