"""Reads what a run trains on: pairs of captions and pictures, and the pictures' image tokens.

- source.py: what a run reads of any corpus, and image tokens of a backbone of the same run
- scene_source.py: composed scenes; scene_pairs.py: their captions and drawings
- record_source.py: records of a corpus on disk; record_pairs.py: their captions
- chosen_captions.py: which of their captions
- frozen_pictures.py: those of a frozen network, for all runs (kept_tokens.py, picture_views.py)
"""
