"""Contents into embeddings and tokens."""
