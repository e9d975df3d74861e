"""Tandem in LlamaIndex: a retriever, and a node postprocessor that reranks."""

from tandem_llama_index.postprocessor import TandemRerank
from tandem_llama_index.retriever import TandemRetriever

__all__ = ["TandemRerank", "TandemRetriever"]
