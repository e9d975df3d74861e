"""Trains joint models: `train(recipe, source, ...)` in train.py is the front door.

The parts, in the order of a run:

- recipes/: the configuration of a run
- sources/: what a run reads
- starting_model.py: random weights, a published encoder or a checkpoint
- stages/: the image backbone learns, then BE and CE in rounds, then a matcher
- published/: a published vision-language model learns as it is
- zoo_training.py: a network of the zoo learns instead
- data/: batches; losses.py: what they are minimised by
- optimisation.py, compute.py, processes.py: steps, device and precision, data parallelism
- dev_recall.py, first_recall.py: the measure that picks the best checkpoint
- runs/: resume after a stop, losses on disk, and the end of a run that diverged
"""
