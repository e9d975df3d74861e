"""Reads what a model needs and calls it: a repository's manifest, inputs as arrays, inference.

- `repository/`: manifest, config.pbtxt, versions, calibration
- `pictures/`, `texts/`: image files, regions and texts to arrays, by the manifest's rules
- `inference/`: arrays in and out, whatever runs the model: batches, windows, canaries

tandem.triton and tandem.modeling.in_process run it.
"""
