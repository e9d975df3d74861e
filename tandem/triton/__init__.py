"""Calls Triton, and runs it on this machine: the only package that imports tritonclient.

- client: inferences with deadlines; messages, fault, metrics: its messages, errors and durations
- install, server: Triton of a wheel as a child process; versions: what it has loaded
"""
