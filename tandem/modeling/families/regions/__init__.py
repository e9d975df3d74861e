"""Reads models whose pictures are a detector's regions, as one encoder, without transformers.

- region_families.py: finds the family of a folder; mmt_folder.py: folders of MMT-Retrieval
- oscar.py (and VinVL), uniter.py (and VILLA), m3p.py, visual_bert.py: the families
- region_encoder.py: what their encoders share; region_head.py: the head for pairs, and how
  published weights are taken; region_model.py: the model and the rules of its texts
"""
