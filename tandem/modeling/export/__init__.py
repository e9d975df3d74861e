"""Exports checkpoints for Triton and checks what was exported.

- export.py: a checkpoint into a model repository; version_export.py: as a further version
- fresh_export.py: the same only if the repository is stale, without importing torch otherwise
- exported.py: TorchScript files, their answers, and the comparison with the eager model
- export_manifest.py: the manifest; lowered.py: bf16, fp16 and int8
- verification.py: `tandem models verify`
"""
