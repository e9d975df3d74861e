"""Reranks without labels; each method is a pure function of embeddings or similarities.

- expansion.py: AQE, AQEwD and alpha-QE, and ADBA, ADBAwD and alpha-DBA
- diffusion.py: DFS and FSR over a graph of mutual neighbours
- reciprocal_neighbours.py: KRNN in both directions
- label_free.py: these methods by name, tuned on dev
"""
