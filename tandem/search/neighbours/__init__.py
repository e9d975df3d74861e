"""Reorders the first items by their neighbours (LeaPRR): the optional third stage.

- neighbour_stage.py: the stage, from the top
- served_model.py: which neighbour model there is
- joined_neighbours.py: the shards' neighbours as one graph
- outcome.py: the scores, or why there are none
"""
