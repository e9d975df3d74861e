"""Evaluates models: galleries, ranks, metrics, reports and calibrations.

- gallery.py: the items that are searched, the queries, and what identifies them
- offline.py, offline_report.py: a checkpoint in this process
- served.py: a running server
- ranking.py: orders; metrics.py: recall and its intervals, p-values
- reports/: a report as JSON, page and picture, and comparisons
- calibration/: match probabilities and the adaptive-depth rule, fitted and tested
"""
