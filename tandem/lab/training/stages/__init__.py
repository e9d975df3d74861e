"""Defines the stages of a run: the image backbone, rounds of BE and CE, and a matcher.

- backbone_stage.py: the image backbone learns from a lesson (backbone_lessons.py)
- rounds.py: the loop; objectives.py draws batches and computes losses; masked_words.py masks
- matcher_stage.py: the matcher of two towers
"""
