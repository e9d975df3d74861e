"""The public door: one query in, ranked items out; items in, durably stored."""
