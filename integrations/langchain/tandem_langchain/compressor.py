"""Reranks documents of any retriever."""

from collections.abc import Sequence
from typing import Literal

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict, Field

from tandem.client import Access, AsyncClient, Client, DocumentScore, ScoredDocuments
from tandem_langchain.documents import scorable


class TandemReranker(BaseDocumentCompressor):
    """Orders at most 200 documents by how well they match a query.

    Stored images, as TandemRetriever finds them, are scored by the cross-encoder, texts of other
    retrievers by the bi-encoder; both together are ordered by match probability, and refused
    (Uncalibrated) of a model without. A document that cannot be scored comes last, with the reason
    in its metadata. Errors are those of `tandem.errors`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    address: str = "127.0.0.1:7400"
    """host:port of the orchestrator."""
    index_id: str
    """The index of the stored images among the documents."""
    top_n: int | None = Field(default=None, ge=0)
    """The number of documents to keep; by default all."""
    truncation_policy: Literal["truncate", "error"] = "truncate"
    """What happens to a text that is longer than the model reads."""
    timeout_seconds: float = 10.0
    access: Access = Field(default_factory=Access.from_environment, exclude=True, repr=False)
    """Token and certificates; by default those of the environment."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Returns copies of the documents, best first, with their scores in the metadata."""
        if not documents:
            return []
        contents = [scorable(each) for each in documents]
        with Client(self.address, self.timeout_seconds, self.access) as client:
            scored = client.score_documents(
                query, contents, index_id=self.index_id, truncation_policy=self.truncation_policy
            )
        return self._ordered(documents, scored)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Returns what `compress_documents` returns."""
        if not documents:
            return []
        contents = [scorable(each) for each in documents]
        async with AsyncClient(self.address, self.timeout_seconds, self.access) as client:
            scored = await client.score_documents(
                query, contents, index_id=self.index_id, truncation_policy=self.truncation_policy
            )
        return self._ordered(documents, scored)

    def _ordered(self, documents: Sequence[Document], scored: ScoredDocuments) -> list[Document]:
        return [
            documents[place].model_copy(
                update={"metadata": {**documents[place].metadata, **_metadata(score, scored)}}
            )
            for place, score in scored.best(self.top_n)
        ]


def _metadata(score: DocumentScore, scored: ScoredDocuments) -> dict[str, object]:
    return {
        "relevance_score": score.relevance,
        "match_probability": score.match_probability,
        "similarity": score.similarity,
        "error": str(score.error.reason) if score.error else None,
        "truncated": score.is_truncated,
        "reranker": scored.reranker,
    }
