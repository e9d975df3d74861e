"""Shows what was measured.

- grid_tables.py, grid_plots.py: what train_grid measured over several seeds
- neighbour_rows.py: methods of reranking by neighbours
"""
