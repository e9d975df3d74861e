"""Evaluates models: galleries, ranks, metrics, reports and calibrations.

- gallery.py: the items that are searched, and the queries
- offline.py, offline_report.py: a checkpoint in this process; served.py: a running server
- ranking.py, fusion.py: orders; metrics.py: recall and its intervals, p-values
- report.py, report_markdown.py, plots.py: the report as JSON, page and picture
- comparison.py: several systems; published.py: the paper's figures; evaluation_time.py: Table 4
- held_out_pools.py, probability_fit.py, logistic.py, adaptive_depth.py, model_calibration.py:
  match probabilities and the adaptive-depth rule, fitted and tested
"""
