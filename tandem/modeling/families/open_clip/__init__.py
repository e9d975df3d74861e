"""Reads models in open_clip's own format as CLIPModel, or as its image side and an XLM-R.

- open_clip.py: the front door
- open_clip_config.py: shapes and pictures; open_clip_weights.py: names of weights
"""
