"""Holds what every service that uses a model has: ModelService, and metrics of the model."""
