"""Evaluates models: galleries, ranks, metrics, reports and calibrations.

- gallery.py: the items that are searched, the queries, and what identifies them
- offline.py, offline_report.py: a checkpoint in this process
- served.py: a running server
- gate.py: whether a model may replace the one that serves
- golden_set.py, golden_standing.py: golden sets, and how many judgements they lack
- ranking.py: orders; metrics.py: recall and its intervals, p-values
- reports/: a report as JSON, page and picture, and comparisons
- calibration/: match probabilities and the adaptive-depth rule, fitted and tested
"""
