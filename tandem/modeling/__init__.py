"""Defines the models: pixels to image tokens, tokens to embeddings and match logits.

- joint_model.py: the whole model; joint_encoder.py: its transformer, the heart of it
- separate_encoders.py, separate_checkpoint.py: BE and CE as two encoders (Sep+Coop)
- two_towers.py: text and picture embedded apart (text_trunk.py, grid_head.py), and pairs scored by
  word_grid_matcher.py
- config.py: the shape; attention.py, pooling.py: parts of the encoder
- image_tokens.py: the sources of image tokens; image_backbone.py (our CNN), patches.py,
  efficientnet.py (frozen), vision_tower.py (networks of others) and region_tokens.py (a detector's
  file)
- checkpoint.py, checkpoint_files.py, stored_weights.py: checkpoints on disk
- export/: checkpoints for Triton; published/: text encoders of others to train from; families/:
  vision-language models of others, to serve
"""
