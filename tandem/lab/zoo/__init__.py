"""Defines the models without pretraining of Rao et al. 2022 in one framework.

- config.py: what a model reads and how large it is; checkpoint.py: the folder that keeps one
- word_readers.py, region_inputs.py: what all of them read
- network.py: networks that embed, and that score pairs, and their hinges
- networks/: the networks, a paper each
- zoo_model.py: a network by name over a frozen image backbone; served.py: ready to be exported
"""
