"""Converts between protobuf messages and the orchestrator's own types.

search_wire   queries, answers and pages
ingest_wire   batches of items and their outcomes
cursor_wire   the remaining items of an answer, as a cursor and its pages
cursor        seals and opens the bytes of a cursor
cursor_shape  checks a cursor before it is parsed
"""
