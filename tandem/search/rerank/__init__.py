"""Decides which candidates the cross-encoder scores, and how long it may take.

rerank          RerankStage: scores candidates chunk by chunk until time or depth ends it
pace            estimates the seconds a pair takes, and sizes chunks
adaptive_depth  stops early by the rule measured for the model
pair_quota      charges a caller's quota for scored pairs
"""
