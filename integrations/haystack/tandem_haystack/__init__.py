"""Tandem in Haystack: a retriever, and a ranker."""

from tandem_haystack.ranker import TandemRanker
from tandem_haystack.retriever import TandemRetriever

__all__ = ["TandemRanker", "TandemRetriever"]
