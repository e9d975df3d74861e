"""Trains published vision-language models as they are (recipe `cooperative`).

- contents.py: captions, pictures and regions, as the model's family reads them
- learner.py: the model, with the interface of JointModel, which the rounds train
- trained_folder.py: the published folder that a run writes
"""
