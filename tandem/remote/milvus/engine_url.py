"""Reads the URL of a Milvus server and its object store.

docs/engines.md has its options: objects, fields, tokens and authority.
"""

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tandem.chassis.settings import SettingsError
from tandem.remote.attached.attachment import Attachments
from tandem.remote.index_engine import ESCAPED_PASSWORD, EngineSettings
from tandem.remote.milvus.collections import Collections
from tandem.remote.milvus.connection import MilvusConnection
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.remote.milvus.typed_fields import typed_fields

_URL_FORM = (
    "the engine's URL is http://HOST:PORT?objects=URL, or https, with the options fields, tokens "
    f"and authority; {ESCAPED_PASSWORD}"
)

_OPTIONS = {"objects": "", "fields": "", "tokens": "off", "authority": ""}


def collections_of(settings: EngineSettings) -> tuple[Collections, bool]:
    """Returns the collections, which connect when they are used, and whether tokens are honoured.

    Raises SettingsError for a URL or a namespace that Milvus cannot have.
    """
    try:
        url = urlsplit(settings.engine_url)
        port = url.port
    except ValueError:  # whose text has a part of the URL, maybe of the password
        raise SettingsError(_URL_FORM) from None
    options = _OPTIONS | dict(parse_qsl(url.query))
    if settings.attachments:
        options["objects"] = Attachments.read(Path(settings.attachments)).pictures
    if (
        url.scheme not in ("http", "https")
        or port == 0
        or not url.hostname
        or not options["objects"]
        or len(options) > len(_OPTIONS)
    ):
        raise SettingsError(_URL_FORM)
    if ":" in url.hostname:  # pymilvus 3.0 drops the brackets
        raise SettingsError("Milvus' client cannot use an IPv6 address: name the host")
    if options["tokens"] not in ("on", "off"):
        raise SettingsError(f"tokens={options['tokens']} in the engine's URL: set on or off")
    if settings.shard_count != 1:
        raise SettingsError("Milvus spreads an index itself: set the shard count to 1")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", settings.engine_namespace):
        raise SettingsError("the engine's namespace is a letter, then letters and digits")
    collections = Collections(
        MilvusConnection(settings.engine_url, options["authority"]),
        ItemObjects(options["objects"], is_new=not settings.attachments),
        settings.engine_namespace,
        typed_fields(options["fields"].split(",") if options["fields"] else []),
    )
    return collections, options["tokens"] == "on"
