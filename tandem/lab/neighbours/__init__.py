"""Reranks items by their neighbours: by baselines without labels, and by LeaPRR.

- lists/: a corpus's nearest items, their similarities, and their file
- baselines/: the methods that Qu et al. 2023 compare LeaPRR with (Table 1)
- leaprr/: the learned method itself; only it imports torch
- neighbour_orders.py: orders of an encoded gallery by these methods, for evaluation
"""
