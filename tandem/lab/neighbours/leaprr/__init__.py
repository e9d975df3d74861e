"""Learns to rerank by neighbours: LeaPRR (Qu et al. 2023), over any base model's similarities.

- config.py: the published paper and the published code, and where they differ
- query_graphs.py: a query with its nearest items, made when a batch needs it; affinity is in
  tandem/model_io/inference/neighbour_affinity.py, since what serves a network makes it too
- network.py: one network a direction
- losses.py, training.py: training of both together
- training_folder.py: a run's files, from which it resumes
- refinement.py: orders of a corpus by trained networks; saved_model.py: these in a file
- served_networks.py: these as Triton models
"""
