"""Runs a whole Tandem on one machine: processes, ports, certificates, Prometheus, version swaps."""
