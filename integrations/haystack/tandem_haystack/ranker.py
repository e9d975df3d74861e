"""Reranks documents of any retriever."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.utils import Secret

from tandem.client import ScoredDocuments, TruncationPolicy
from tandem_haystack.connection import Connection
from tandem_haystack.documents import scorable


@component
class TandemRanker:
    """Orders at most 200 documents by how well they match a query.

    Images, stored or given, are scored by the cross-encoder, texts by the bi-encoder; both together
    are ordered by match probability, and refused (Uncalibrated) of a model without. A document that
    cannot be scored comes last, without a score. Errors are those of `tandem.errors`; a pipeline
    wraps them in its own.
    """

    def __init__(  # noqa: PLR0913 (each is a key of a pipeline's file)
        self,
        index_id: str,
        *,
        address: str = "127.0.0.1:7400",
        top_k: int | None = None,
        truncation_policy: str = "truncate",
        timeout_seconds: float = 10.0,
        token: Secret | None = Secret.from_env_var("TANDEM_TOKEN", strict=False),  # noqa: B008
        authority_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        """Takes the index of the stored images among the documents.

        `truncation_policy`, truncate or error, is for texts longer than the model reads. Raises
        ValueError for another.
        """
        self.truncation_policy = TruncationPolicy(truncation_policy).value
        self.index_id = index_id
        self.top_k = top_k
        self.connection = Connection(
            address, timeout_seconds, token, authority_file, certificate_file, key_file
        )

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns copies of the documents with their scores, best first."""
        if not documents:
            return {"documents": []}
        contents = [scorable(each) for each in documents]
        with self.connection.client() as client:
            scored = client.score_documents(
                query, contents, index_id=self.index_id, truncation_policy=self.truncation_policy
            )
        return {"documents": self._ordered(documents, scored, top_k)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns what `run` returns."""
        if not documents:
            return {"documents": []}
        contents = [scorable(each) for each in documents]
        async with self.connection.async_client() as client:
            scored = await client.score_documents(
                query, contents, index_id=self.index_id, truncation_policy=self.truncation_policy
            )
        return {"documents": self._ordered(documents, scored, top_k)}

    def to_dict(self) -> dict[str, Any]:
        """Returns the component for a pipeline's file, without the token itself."""
        return default_to_dict(
            self,
            index_id=self.index_id,
            top_k=self.top_k,
            truncation_policy=self.truncation_policy,
            **self.connection.to_dict(),
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "TandemRanker":
        """Returns the component of a pipeline's file."""
        return default_from_dict(cls, data)

    def _ordered(
        self, documents: Sequence[Document], scored: ScoredDocuments, top_k: int | None
    ) -> list[Document]:
        best = scored.best(self.top_k if top_k is None else top_k)
        return [replace(documents[place], score=score.relevance) for place, score in best]
