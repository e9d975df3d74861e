"""Makes the shard and the candidates of a Milvus server by the engine's URL.

docs/engines.md has its options: objects, fields, tokens and authority.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from tandem.chassis.settings import SettingsError
from tandem.remote.index_engine import ESCAPED_PASSWORD, EngineSettings
from tandem.remote.milvus.candidates import MilvusCandidates
from tandem.remote.milvus.collections import Collections
from tandem.remote.milvus.connection import MilvusConnection
from tandem.remote.milvus.item_objects import ItemObjects, RequestObjects
from tandem.remote.milvus.shard import MilvusShard
from tandem.remote.milvus.typed_fields import typed_fields

_URL_FORM = (
    "the engine's URL is http://HOST:PORT?objects=URL, or https, with the options fields, tokens "
    f"and authority; {ESCAPED_PASSWORD}"
)


class MilvusEngine:
    """Makes what the services use of a Milvus server."""

    def __init__(self, settings: EngineSettings) -> None:
        """Raises SettingsError for a URL or a namespace that Milvus cannot have."""
        try:
            url = urlsplit(settings.engine_url)
            port = url.port
        except ValueError:  # whose text has a part of the URL, maybe of the password
            raise SettingsError(_URL_FORM) from None
        options = {name: values[-1] for name, values in parse_qs(url.query).items()}
        objects = options.pop("objects", "")
        fields = options.pop("fields", "")
        tokens = options.pop("tokens", "off")
        authority_path = options.pop("authority", "")
        if (
            url.scheme not in ("http", "https")
            or port == 0
            or not url.hostname
            or not objects
            or options
        ):
            raise SettingsError(_URL_FORM)
        if tokens not in ("on", "off"):
            raise SettingsError(f"tokens={tokens} in the engine's URL: set on or off")
        if settings.shard_count != 1:
            raise SettingsError("Milvus spreads an index itself: set the shard count to 1")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", settings.engine_namespace):
            raise SettingsError("the engine's namespace is a letter, then letters and digits")
        self._namespace = settings.engine_namespace
        self._tokens_honoured = tokens == "on"
        self._objects = ItemObjects(objects)
        self._connection = MilvusConnection(settings.engine_url, authority_path)
        self._collections = Collections(
            self._connection, self._namespace, typed_fields(fields.split(",") if fields else [])
        )

    def shard(self) -> MilvusShard:
        """Returns the shard, for index_svc."""
        return MilvusShard(
            self._connection,
            self._collections,
            self._objects,
            RequestObjects(self._objects, f"{self._namespace}-requests"),
            tokens_honoured=self._tokens_honoured,
        )

    def candidates(self, fingerprint: str) -> MilvusCandidates:
        """Returns the candidates of indexes of the served model, for rerank_svc."""
        return MilvusCandidates(self._connection, self._collections, self._objects, fingerprint)
