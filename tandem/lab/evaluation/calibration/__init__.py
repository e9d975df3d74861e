"""Fits and tests what a model is calibrated with: match probabilities and the adaptive-depth rule.

- held_out_pools.py: scored pools with known answers
- probability_fit.py: probabilities, by logistic.py; adaptive_depth.py: the rule
- model_calibration.py: both, and a page on them
- index_calibration.py: what the scores of a served index mean, with its null scores
"""
