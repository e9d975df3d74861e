"""Calls the downstream services: clients, circuit breaker, retries, batching."""
