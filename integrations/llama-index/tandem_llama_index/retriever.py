"""Finds stored images and texts as nodes."""

from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from tandem.client import Access, AsyncClient, Client, Modality, SearchOptions
from tandem_llama_index.nodes import found_nodes, query_of


class TandemRetriever(BaseRetriever):
    """Retrieves with the bi-encoder and reranks with the cross-encoder, in one call of Tandem.

    A query's picture (`QueryBundle.image_path`) takes the place of its text. Errors are those of
    `tandem.errors`.
    """

    def __init__(  # noqa: PLR0913 (each is an option of a search)
        self,
        index_id: str,
        *,
        address: str = "127.0.0.1:7400",
        similarity_top_k: int = 5,
        where: str | None = None,
        target_modality: Modality | None = Modality.IMAGE,
        search_options: SearchOptions | None = None,
        timeout_seconds: float = 10.0,
        access: Access | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        """Takes further options of a search in `search_options`.

        `access` has token and certificates; by default it is that of the environment.
        """
        super().__init__(callback_manager=callback_manager)
        self._index_id = index_id
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._access = Access.from_environment() if access is None else access
        self._options: SearchOptions = {
            "content_included": True,
            "attributes_included": True,
            "target_modality": target_modality,
            **(search_options or {}),
            "return_n": similarity_top_k,
            "where": where,
        }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        with Client(self._address, self._timeout_seconds, self._access) as client:
            return found_nodes(
                client.search(query_of(query_bundle), index_id=self._index_id, **self._options)
            )

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        async with AsyncClient(self._address, self._timeout_seconds, self._access) as client:
            return found_nodes(
                await client.search(
                    query_of(query_bundle), index_id=self._index_id, **self._options
                )
            )
