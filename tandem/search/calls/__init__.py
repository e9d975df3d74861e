"""Calls stages with a deadline, a circuit breaker and at most one retry, singly or together.

guarded       the stages with circuit breakers, retries and checks
guard         one call; breaker, retry_budget: its circuit breaker and limit on retries
batching      the stages for several searches in one call
call_batcher  collects requests with equal keys
fan_out       awaits several calls, and cancels the rest if one fails
"""
