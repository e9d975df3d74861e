"""Content ↔ tensors on both sides of the export, and the way to Triton."""
