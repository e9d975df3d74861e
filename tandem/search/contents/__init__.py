"""Serves what searches do not: stored items, and the models on contents that are not stored.

stored_items  fetches items and lists ids over all shards
documents     scores documents against a query
item_reads    reads any number of items, within the bytes that answers may hold
stored_contents  reads a stored item's content where a rerank needs it
content_budget     limits the bytes of contents in answers
"""
