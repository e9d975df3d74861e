"""Keeps what outlives a step: the state to resume from, losses on disk, and a queue of runs.

- run.py: what the stages of a run share; run_state.py: the file that it resumes from
- divergence.py: the end of a run whose numbers became infinite
- loss_curve.py, curve_plot.py: losses on disk, and their plot
- run_manifest.py: a list of runs that survives a restart
"""
