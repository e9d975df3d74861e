"""Defines the models: pixels to image tokens, tokens to embeddings and match logits.

- joint_model.py: the whole model; joint_encoder.py: its transformer, the heart of it; config.py:
  the shape
- separate_encoders.py, separate_checkpoint.py: BE and CE as two encoders (Sep+Coop)
- towers/: text and picture embedded apart, and pairs scored by a matcher
- image_sources/: where image tokens come from: our networks, those of others, a detector's file
- checkpoint.py, checkpoint_files.py, stored_weights.py, trained_pictures.py: checkpoints on disk;
  default_checkpoint.py: the one that ships
- published/: text encoders of others to train from; families/: vision-language models of others, to
  serve
- export/: models for Triton; in_process/: an exported model without Triton
"""
