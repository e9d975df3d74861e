"""LangChain's own tests of retrievers."""

from typing import Any

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests

from tandem.client import Access
from tandem_langchain import TandemRetriever


class TestTandemRetriever(RetrieversIntegrationTests):
    """The retriever over the scenes."""

    @pytest.fixture(autouse=True)
    def _use(self, system: dict[str, Any], access: Access) -> None:
        self._system, self._access = system, access

    @property
    def retriever_constructor(self) -> type[TandemRetriever]:
        """The class."""
        return TandemRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        """Where the system is."""
        return {
            "address": self._system["address"],
            "index_id": "scenes",
            "timeout_seconds": 60.0,
            "access": self._access,
        }

    @property
    def retriever_query_example(self) -> str:
        """A query."""
        return "three frogs left of one fountain"
