"""Sends the items of an ingest.

batches  what is sent together, and its outcomes
rounds   items that a busy server refused, again; how far an ingest is
"""
