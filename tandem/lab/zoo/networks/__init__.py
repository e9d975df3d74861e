"""Defines the networks of Rao et al. 2022, a paper each.

- vse_pp.py, vse_infinity.py, vsrn.py, saem.py, camera.py: they embed
- scan.py, sgraf.py, camp.py, dime.py: they score pairs, most by cross_attention.py
- word_convolutions.py: the windows of words that SAEM and DIME read
"""
