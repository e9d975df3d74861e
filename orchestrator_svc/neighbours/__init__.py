"""Reorders the first items by what is near them (LeaPRR): the optional third stage.

- outcome.py: the scores, or why there are none
"""
