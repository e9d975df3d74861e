"""Finds the nearest items of a corpus, and keeps them.

- neighbour_lists.py: nearest items, orders of scores with a base order for ties, and LeaPRR's view
  of them, in one direction
- corpus_neighbours.py, gallery_neighbours.py: a corpus's embeddings, lists and CE pools
- neighbour_file.py: a corpus's neighbours on disk
"""
