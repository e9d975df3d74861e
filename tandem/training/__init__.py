"""Trains joint models: `train(recipe, source, ...)` in train.py is the front door.

The parts, in the order of a run:

- recipe.py and recipes.py: the configuration of a run, and the named ones
- source.py: what a run reads; scene_source.py composes scenes, record_source.py reads a corpus
- starting_model.py: random weights, a published encoder or a checkpoint
- backbone_stage.py: the image backbone learns from label_lesson.py (scenes) or pair_lesson.py
- picture_tokens.py: every picture's image tokens, computed once
- rounds.py: the loop; objectives.py draws batches and computes losses.py; masked_words.py masks
- optimisation.py, compute.py, processes.py: steps, device and precision, data parallelism
- dev_recall.py, first_recall.py: the measure that picks the best checkpoint
- run.py, run_state.py, divergence.py: resume after a stop, and the end of a run that diverged
- loss_curve.py, curve_plot.py: losses on disk, and their plot
- data/: pairs, batches, image tokens and negatives
"""
