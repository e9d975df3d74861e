"""Reranks nodes of any retriever."""

from collections.abc import Sequence
from typing import Literal

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from tandem.client import Access, AsyncClient, Client, ScoredDocuments
from tandem_llama_index.nodes import query_of, scorable


class TandemRerank(BaseNodePostprocessor):
    """Orders at most 200 nodes by how well they match the query.

    Stored images, as TandemRetriever finds them, are scored by the cross-encoder, texts of other
    retrievers by the bi-encoder; both together are ordered by match probability, and refused
    (Uncalibrated) of a model without. A node that cannot be scored comes last, without a score.
    Errors are those of `tandem.errors`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    address: str = "127.0.0.1:7400"
    index_id: str = Field(description="The index of the stored images among the nodes.")
    top_n: int | None = Field(default=None, ge=0, description="The number of nodes to keep.")
    truncation_policy: Literal["truncate", "error"] = Field(
        default="truncate", description="What happens to a text longer than the model reads."
    )
    timeout_seconds: float = 10.0
    access: Access = Field(default_factory=Access.from_environment, exclude=True, repr=False)

    @classmethod
    def class_name(cls) -> str:
        """Returns the name by which LlamaIndex stores it."""
        return "TandemRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = query_of(_given(query_bundle))
        if not nodes:
            return []
        contents = [scorable(each.node) for each in nodes]
        with Client(self.address, self.timeout_seconds, self.access) as client:
            scored = client.score_documents(
                query, contents, index_id=self.index_id, truncation_policy=self.truncation_policy
            )
        return self._ordered(nodes, scored)

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = query_of(_given(query_bundle))
        if not nodes:
            return []
        contents = [scorable(each.node) for each in nodes]
        async with AsyncClient(self.address, self.timeout_seconds, self.access) as client:
            scored = await client.score_documents(
                query, contents, index_id=self.index_id, truncation_policy=self.truncation_policy
            )
        return self._ordered(nodes, scored)

    def _ordered(
        self, nodes: Sequence[NodeWithScore], scored: ScoredDocuments
    ) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=nodes[place].node, score=score.relevance)
            for place, score in scored.best(self.top_n)
        ]


def _given(bundle: QueryBundle | None) -> QueryBundle:
    if bundle is None:
        raise ValueError("a rerank needs the query: pass query_bundle or query_str")
    return bundle
