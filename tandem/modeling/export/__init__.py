"""Exports checkpoints to TorchScript and checks what was exported."""
