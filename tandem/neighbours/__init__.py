"""Reranks items by their neighbours: by baselines without labels, and by LeaPRR.

The baselines are those that Qu et al. 2023 compare LeaPRR with (Table 1). Each is a pure function
of embeddings or similarities:

- neighbour_lists.py: nearest items, and orders of scores with a base order for ties
- neighbour_weights.py, query_expansion.py: AQE, AQEwD and alpha-QE
- database_augmentation.py: ADBA, ADBAwD and alpha-DBA, before or together with the queries
- neighbour_graph.py, diffusion.py, spectral.py: DFS and FSR over a mutual-neighbour graph
- reciprocal_neighbours.py: KRNN in both directions
- corpus_neighbours.py, gallery_neighbours.py, neighbour_file.py: a corpus's lists, and their file
- label_free.py: these methods by name, tuned on dev; neighbour_orders.py: orders of a gallery
- leaprr/: the learned method itself; only it imports torch
"""
