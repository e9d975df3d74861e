"""Tandem in LangChain: a retriever, and a document compressor that reranks."""

from tandem_langchain.compressor import TandemReranker
from tandem_langchain.retriever import TandemRetriever

__all__ = ["TandemReranker", "TandemRetriever"]
