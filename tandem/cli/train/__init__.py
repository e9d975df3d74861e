"""`tandem train`.

train, train_options  the command, and its recipe
train_seeds           several seeds
train_neighbours      LeaPRR
"""
