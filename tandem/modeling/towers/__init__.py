"""Embeds text and picture apart, and scores pairs by a matcher.

- two_towers.py: all of it behind the interface of the joint encoder
- text_trunk.py: the text's layers; grid_head.py: the picture's
- word_grid_matcher.py: the matcher; attention_pool.py: states to one vector
"""
