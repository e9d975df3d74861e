"""Reads what a run trains on: pairs of captions and pictures, and the pictures' image tokens.

- source.py: what a run reads of any corpus
- scene_source.py: composed scenes; scene_pairs.py: their captions and drawings
- record_source.py: records of a corpus on disk; record_pairs.py: their captions
- spoken_captions.py, fitting_captions.py: captions to leave out; records_digest.py: what was read
- picture_tokens.py: image tokens of a backbone that learned in the same run
- frozen_pictures.py: those of a frozen network, for all runs (kept_tokens.py, picture_views.py)
"""
