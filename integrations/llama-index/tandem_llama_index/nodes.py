"""Converts between found items and LlamaIndex's nodes."""

import base64
from contextlib import suppress
from pathlib import Path

from llama_index.core.schema import BaseNode, ImageNode, NodeWithScore, QueryBundle, TextNode

from tandem.client import (
    FoundItem,
    ImageContent,
    SearchResult,
    StoredItem,
    TextContent,
    decoded_picture,
)


def query_of(bundle: QueryBundle) -> str | bytes:
    """Returns the query's picture if it names one, otherwise its text."""
    if bundle.image_path:
        return Path(bundle.image_path).read_bytes()
    return bundle.query_str


def found_nodes(result: SearchResult) -> list[NodeWithScore]:
    """Returns a node for each found item, best first.

    Scores are `FoundItem.relevance`: probabilities of a calibrated cross-encoder, similarities
    where it scored nothing.
    """
    return [
        NodeWithScore(
            node=_node(item, result),
            score=item.relevance,
        )
        for item in result.items
    ]


def scorable(node: BaseNode) -> str | bytes | StoredItem:
    """Returns what to score of a node: its stored image, its text, or its own picture.

    A picture that a node has by its URL alone is not fetched.
    """
    if node.metadata.get("modality") == "image" and node.metadata.get("item_id"):
        return StoredItem(node.metadata["item_id"])
    text = node.get_content()
    if not text and isinstance(node, ImageNode):
        with suppress(OSError, ValueError):  # An empty text comes last, and refuses no other.
            if node.image:
                return decoded_picture(node.image)
            if node.image_path:
                return Path(node.image_path).read_bytes()
    return text


def _node(item: FoundItem, result: SearchResult) -> TextNode:
    metadata = result.metadata(item)
    # None of it belongs into the text that a language model reads or that is embedded.
    hidden = list(metadata)
    if isinstance(item.content, ImageContent):
        return ImageNode(
            id_=item.item_id,
            image=base64.b64encode(item.content.image_bytes).decode(),
            metadata=metadata,
            excluded_llm_metadata_keys=hidden,
            excluded_embed_metadata_keys=hidden,
        )
    return TextNode(
        id_=item.item_id,
        text=item.content.text if isinstance(item.content, TextContent) else "",
        metadata=metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
    )
