"""Finds stored images and texts as documents."""

from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from tandem.client import Access, AsyncClient, Client, Modality, SearchOptions
from tandem_langchain.documents import found_documents


class TandemRetriever(BaseRetriever):
    """Retrieves with the bi-encoder and reranks with the cross-encoder, in one call of Tandem.

    Errors are those of `tandem.errors`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    address: str = "127.0.0.1:7400"
    """host:port of the orchestrator."""
    index_id: str
    k: int = 5
    """The number of documents."""
    where: str | None = None
    """A filter, for example "style = noto and count >= 2"."""
    target_modality: Modality | None = Modality.IMAGE
    """What to find."""
    text_attribute: str = ""
    """The attribute that gives an image's document its text, a list by lines; by default none."""
    search_options: dict[str, Any] = Field(default_factory=dict)
    """Further options of `tandem.client.SearchOptions`, for example min_probability."""
    timeout_seconds: float = 10.0
    access: Access = Field(default_factory=Access.from_environment, exclude=True, repr=False)
    """Token and certificates; by default those of the environment."""

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        **options: Any,  # noqa: ANN401 (what invoke was given)
    ) -> list[Document]:
        with Client(self.address, self.timeout_seconds, self.access) as client:
            result = client.search(query, index_id=self.index_id, **self._options(options))
        return found_documents(result, self.text_attribute)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        **options: Any,  # noqa: ANN401 (what ainvoke was given)
    ) -> list[Document]:
        async with AsyncClient(self.address, self.timeout_seconds, self.access) as client:
            result = await client.search(query, index_id=self.index_id, **self._options(options))
        return found_documents(result, self.text_attribute)

    def _options(self, given: dict[str, Any]) -> SearchOptions:
        """Returns the options of one call, of which `k` and `where` may be its own."""
        options: SearchOptions = {
            "content_included": True,
            "attributes_included": True,
            "target_modality": self.target_modality,
            **self.search_options,  # type: ignore[typeddict-item]
            "return_n": self.k if given.get("k") is None else given["k"],
            "where": self.where if given.get("where") is None else given["where"],
        }
        if unknown := sorted(set(given) - {"k", "where"}):
            raise TypeError(f"invoke takes k and where, not {', '.join(unknown)}")
        return options
