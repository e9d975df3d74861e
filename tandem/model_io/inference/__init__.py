"""Calls an exported model: arrays in, arrays out, whatever runs it.

- model_runner: what runs inferences, and what they return; Triton's is tandem.triton.client
- served_model: the model's three functions; served_texts: the ids that they read
- buckets, pair_window, joined_scoring: pads a call's rows, limits its pairs, and joins calls
- canary, version_check: whether the model answers, and whether a version may replace another
- served_neighbour_model, neighbour_affinity: a neighbour model (LeaPRR) and its graphs
"""
