"""Orders candidates by their scores, and explains the order.

ranking      the whole order: scores, filters, diversity, interleaved modalities
hybrid_fusion  fuses the nearest items with those that words found, before the rerank
abstention   leaves out what a query without an answer may find
fusion       fuses similarity and match into one score
diversity    removes near-duplicates, and applies maximal marginal relevance
"""
