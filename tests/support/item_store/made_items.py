"""Makes small items from a seed, for tests that store or search them."""

from collections.abc import Sequence

import numpy as np

from tandem.contract.content import Encoding, ImageContent, ImageTokens, TextContent, TextTokens
from tandem.contract.limits import MAX_UPSERT_ITEM_COUNT
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemRecord

DIMENSION = 8
FINGERPRINT = "model-a"


def unit_vector(seed: int, dimension: int = DIMENSION) -> np.ndarray:
    """Returns a float32 vector of length 1; different seeds give different ones."""
    vector = np.random.default_rng(seed).standard_normal(dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def text_item(item_id: str, seed: int = 0, dimension: int = DIMENSION) -> ItemRecord:
    """Returns a text item with words and embedding from its seed."""
    tokens = TextTokens(np.array([101, seed, 102], dtype=np.int32))
    encoding = Encoding(unit_vector(seed, dimension), tokens)
    return ItemRecord(item_id, TextContent(f"{item_id} of seed {seed}"), encoding)


def image_item(item_id: str, seed: int = 0, dimension: int = DIMENSION) -> ItemRecord:
    """Returns an image item of 49 x 4 tokens, whose bytes are not a real picture."""
    values = np.random.default_rng(seed).standard_normal((49, 4)).astype(np.float16)
    encoding = Encoding(unit_vector(seed, dimension), ImageTokens(values))
    return ItemRecord(item_id, ImageContent(b"\x89PNG" + bytes([seed % 256]) * 50), encoding)


def upserts_of(items: Sequence[ItemRecord]) -> list[Upsert]:
    """Returns the writes that store any number of items in the index "scenes"."""
    starts = range(0, len(items), MAX_UPSERT_ITEM_COUNT)
    return [
        Upsert("scenes", FINGERPRINT, items[start : start + MAX_UPSERT_ITEM_COUNT])
        for start in starts
    ]
