"""Keeps a model repository: one model of ours, identified by the fingerprint in its manifest.

- manifest, served_functions: what an exported model is; its three functions and its tensors' roles
- config_pbtxt, precision, priority: each model's configuration for Triton
- model_repository: lists its models, and removes ours
- calibration: match probabilities and the adaptive-depth rule of a model
- model_version, followed_version: versions of a model; the one that a service requests, described
- swap_attendance: which process swaps versions
- neighbour_manifest, neighbour_config: an exported neighbour model (LeaPRR)
"""
