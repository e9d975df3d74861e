"""Composes the demo scenes: drawings in a stated arrangement, with captions in four languages.

- scene.py, nouns.py: what a scene shows; captions.py, drawing.py: its sentences and its picture
- records.py: families of scenes, and what each split may show
"""
