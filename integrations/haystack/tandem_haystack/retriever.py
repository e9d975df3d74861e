"""Finds stored images and texts as documents."""

from enum import Enum
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.utils import Secret

from tandem.client import Modality, SearchOptions
from tandem_haystack.connection import Connection
from tandem_haystack.documents import found_documents


@component
class TandemRetriever:
    """Retrieves with the bi-encoder and reranks with the cross-encoder, in one call of Tandem.

    Errors are those of `tandem.errors`; a pipeline wraps them in its own.
    """

    def __init__(  # noqa: PLR0913 (each is a key of a pipeline's file)
        self,
        index_id: str,
        *,
        address: str = "127.0.0.1:7400",
        top_k: int = 10,
        where: str | None = None,
        target_modality: str = "image",
        search_options: dict[str, Any] | None = None,
        timeout_seconds: float = 10.0,
        token: Secret | None = Secret.from_env_var("TANDEM_TOKEN", strict=False),  # noqa: B008
        authority_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        """Takes "image" or "text" as `target_modality`; raises ValueError for another.

        `search_options` has further options of `tandem.client.SearchOptions`; an enum may be named,
        as it is in a pipeline's file.
        """
        self._modality = Modality(target_modality)
        self.index_id = index_id
        self.top_k = top_k
        self.where = where
        self.search_options = search_options or {}
        self.connection = Connection(
            address, timeout_seconds, token, authority_file, certificate_file, key_file
        )

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, where: str | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the documents that match a text, best first.

        `where` and `top_k` take the place of the component's own.
        """
        with self.connection.client() as client:
            result = client.search(query, index_id=self.index_id, **self._options(where, top_k))
        return {"documents": found_documents(result)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, where: str | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns what `run` returns."""
        async with self.connection.async_client() as client:
            result = await client.search(
                query, index_id=self.index_id, **self._options(where, top_k)
            )
        return {"documents": found_documents(result)}

    def to_dict(self) -> dict[str, Any]:
        """Returns the component for a pipeline's file, without the token itself."""
        return default_to_dict(
            self,
            index_id=self.index_id,
            top_k=self.top_k,
            where=self.where,
            target_modality=self._modality.value,
            search_options={name: _plain(each) for name, each in self.search_options.items()},
            **self.connection.to_dict(),
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "TandemRetriever":
        """Returns the component of a pipeline's file."""
        return default_from_dict(cls, data)

    def _options(self, where: str | None, top_k: int | None) -> SearchOptions:
        options: SearchOptions = {
            "content_included": True,
            "attributes_included": True,
            "target_modality": self._modality,
            **self.search_options,  # type: ignore[typeddict-item]
            "return_n": self.top_k if top_k is None else top_k,
            "where": self.where if where is None else where,
        }
        return options


def _plain(value: object) -> object:
    """Returns what a pipeline's file can have: an enum's name, and a list for a tuple."""
    if isinstance(value, Enum):
        return value.name
    return list(value) if isinstance(value, tuple) else value
