"""Evaluates models: galleries, ranks, metrics, reports and calibrations.

- gallery.py: the items that are searched, and the queries; gallery_digest.py: what identifies them
- offline.py, tower_pairs.py, offline_report.py: a checkpoint in this process
- served.py: a running server
- ranking.py, fusion.py: orders; metrics.py: recall and its intervals, p-values
- reports/: a report as JSON, page and picture, and comparisons
- calibration/: match probabilities and the adaptive-depth rule, fitted and tested
"""
