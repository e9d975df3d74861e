"""Keeps a model repository: one Tandem model, identified by its manifest's fingerprint.

- manifest, served_functions: what an exported model is; its three functions and its tensors' roles
- config_pbtxt, precision, priority: each model's configuration for Triton
- model_repository: lists its models, and removes Tandem's
- calibration: match probabilities and the adaptive-depth rule of a model
- model_version, followed_version: versions of a model; the one that a service requests, described
- swap_attendance: which process swaps versions
- neighbour_manifest, neighbour_config: an exported neighbour model (LeaPRR)
"""
