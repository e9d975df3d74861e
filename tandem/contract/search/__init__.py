"""Defines what is asked of a search, and what it answers, for the SDK and the services.

query         a query and its options; query_wire: from and to messages
ingest        a batch of items to store; ingest_wire: from and to messages
indexes       what is said of indexes, and its messages
documents     how well documents match a query, and its messages
score_calibration  what scores of an index mean
answer        results; answer_names: their enums; answer_wire: from and to messages
"""
