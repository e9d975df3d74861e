"""Trains and measures models: what the extra `lab` brings.

- `training/`, `zoo/`: joint models and towers; models without pretraining
- `evaluation/`: galleries, ranks, metrics, reports and calibrations
- `neighbours/`: reranking by neighbours, by baselines and by LeaPRR
"""
