"""Gives image tokens: from pixels by a backbone, or from a detector's file.

- image_tokens.py: the backbone of a shape, the tokens of a corpus' records, and patches as tokens
- image_backbone.py: our CNN; efficientnet.py: EfficientNet-Lite0, frozen
- vision_tower.py: networks of transformers; pixel_scale.py: what happens to their pixels
- region_tokens.py: a detector's regions in our file; region_sources.py: in files of torch
"""
