"""Trains published vision-language models as they are (recipe `cooperative`).

- learner.py: the model, with the interface of JointModel, which the rounds train
- trained_folder.py: the published folder that a run writes
"""
