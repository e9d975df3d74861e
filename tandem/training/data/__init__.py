"""Prepares what a training run reads: pairs, batches, image tokens, negatives."""
