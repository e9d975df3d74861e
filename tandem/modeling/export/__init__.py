"""Exports checkpoints for Triton and checks what was exported.

- export.py: a checkpoint into a model repository; version_export.py: as a further version
- installation.py: any model's modules into a model repository, compared with the eager ones
- fresh_export.py: the same only if the repository is stale, without importing torch otherwise
- exported.py: TorchScript and torch.export files, and their comparison with the eager modules
- published_export.py, published_manifest.py: published models, one or two of them;
  pooled_tokens.py: a quarter of a picture's tokens
- device_free.py: traces that run on any device
- samples.py: inputs of every kind, batch size and length that is served
- export_manifest.py: the manifest; lowered.py: bf16, fp16 and int8
- verification.py: `tandem models verify`; demo_model.py: whether a model is the demo's
"""
