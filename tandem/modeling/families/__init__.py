"""Reads published vision-language models, one file a family, through transformers' own classes.

A family turns a folder in the hub's layout into a `PublishedModel` (published_model.py): three
functions as torch modules, and the rules by which contents become their inputs.

- reader.py: the front door; finds the folder and, by a table of `model_type`, the family
- loaded_model.py: published weights into a class of transformers, every weight or none
- text_rules.py, image_rules.py: tokenizer and image processor, held to those of transformers
- towers.py: the functions of a bi-encoder; described.py: the model of parts
- clip.py, siglip.py, blip.py, blip2.py, vilt.py: families; open_clip/: those in open_clip's own
  format; regions/: those that read a detector's regions
- vision_folder.py: opens a published vision network to train over
- modules_file.py, text_tower.py: a text tower of sentence-transformers with the image tower of
  another model

A new family is one file with `read_NAME(folder: PublishedFolder) -> PublishedModel` and a line in
reader.py's table. transformers is imported inside functions, because it takes seconds.
"""
