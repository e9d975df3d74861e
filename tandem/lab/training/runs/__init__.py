"""Keeps what outlives a step: the state to resume from, losses on disk, and a queue of runs.

- run.py: what the stages of a run share, and its end where numbers became infinite
- run_state.py: the file that it resumes from
- loss_curve.py: losses on disk, and their plot
- run_manifest.py: a list of runs that survives a restart
"""
