"""Chooses the FAISS type of an index, and how many candidates to fetch from it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tandem.errors import IndexTypeInvalid
from tandem.local.shard.retrieval.faiss_index import FaissIndex, make_empty

AUTO = "auto"
FLAT = "Flat"
"""Compares every item, without a FAISS index, which would be a second copy of them."""

# One core compares 20,000 x 384 values in about 1.2 ms: an approximate index saves nothing yet.
MIN_APPROXIMATE_COUNT = 20_000

# One bit a value is too coarse for short embeddings: of 20,000 clustered ones, the 200 nearest by
# code contain 92.5 % of the 20 truly nearest at 16 values, 99.1 % at 64 and 99.8 % at 128.
MIN_BIT_DIMENSION = 128
_BITS = "RaBitQfs"
# One byte a value next to them chooses which few of many candidates are worth a read in full.
_BITS_AND_BYTES = f"{_BITS},Refine(SQ8)"
# Bytes that RaBitQ stores for each embedding in addition to its bits, and IVF for each row.
_BIT_FACTOR_BYTES = 12
_ROW_NUMBER_BYTES = 8

_LISTS = re.compile(r"IVF(\d+)(,.*)")
_MIN_LIST_COUNT = 64
_MAX_LIST_COUNT = 1 << 16


@dataclass(frozen=True, slots=True)
class IndexTuning:
    """Describes the index that an operator wants for one modality."""

    index_type: str = AUTO
    """"auto", "Flat", or any string that FAISS's factory takes."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Search parameters by FAISS's names; if empty, they are found by measuring."""
    recall_target: float = 0.98
    memory_bytes: int = 0
    """Limit on FAISS's codes, excluding the embeddings themselves; 0 for no limit."""

    def check(self, dimension: int) -> None:
        """Raises IndexTypeInvalid for values that FAISS or this program does not support."""
        if not 0 < self.recall_target <= 1:
            raise IndexTypeInvalid(why=f"the recall target is {self.recall_target}; send 0 to 1")
        if self.index_type in (AUTO, FLAT):
            return
        make_empty(self.index_type, dimension)


def choose_index_types(
    tuning: IndexTuning,
    item_count: int,
    dimension: int,
    *,
    is_on_gpu: bool = False,
    rows_exceed_memory: bool = False,
) -> list[str]:
    """Returns the types to try in order, until one reaches the recall target.

    For "auto" these fit size and memory: one bit a value first, unless rows have to be read from
    the disk, then finer codes.
    """
    if tuning.index_type != AUTO:
        return [tuning.index_type]
    if item_count < MIN_APPROXIMATE_COUNT:
        return [FLAT]

    lists = f"IVF{balanced_list_count(item_count)}"

    def fitting(codes: Sequence[tuple[int, str]]) -> list[str]:
        return [
            f"{lists},{name}"
            for code_bytes, name in codes
            if not tuning.memory_bytes
            or item_count * (code_bytes + _ROW_NUMBER_BYTES) <= tuning.memory_bytes
        ]

    coarse, finer = [], [(dimension, "SQ8")]
    if not is_on_gpu and dimension >= MIN_BIT_DIMENSION:  # FAISS has no such index on GPUs
        bit_bytes = math.ceil(dimension / 8) + _BIT_FACTOR_BYTES
        coarse = [] if rows_exceed_memory else [(bit_bytes, _BITS)]
        finer.insert(0, (bit_bytes + dimension, _BITS_AND_BYTES))
    # "np" skips a training step that takes ten times as long as all others.
    finer += [
        (dimension // part_size, f"PQ{dimension // part_size}np")
        for part_size in (2, 4, 8, 16, 32)
        if dimension % part_size == 0
    ]
    types = fitting(coarse) + fitting(finer)[:1]
    return types or [FLAT]


def candidate_types(item_count: int, dimension: int) -> list[str]:
    """Returns the types worth measuring for so many items.

    FAISS trains the 256 codes of a product quantizer from at least as many items.
    """
    lists = f"IVF{balanced_list_count(item_count)}"
    types = [FLAT, f"{lists},Flat", f"{lists},SQ8", "HNSW32", "SQ8"]
    if dimension >= MIN_BIT_DIMENSION:
        types += [f"{lists},{_BITS}", f"{lists},{_BITS_AND_BYTES}"]
    sizes = [size for size in (2, 4, 8) if dimension % size == 0 and item_count >= 256]
    return types + [f"{lists},PQ{dimension // size}np" for size in sizes]


def is_outdated(current: str, wanted: str) -> bool:
    """Returns whether an index of the current type should be rebuilt as the wanted one.

    A fourfold difference in the number of lists is tolerated, because training takes minutes.
    """
    if current == wanted:
        return False
    numbers = [_LISTS.fullmatch(index_type) for index_type in (current, wanted)]
    if numbers[0] is None or numbers[1] is None or numbers[0][2] != numbers[1][2]:
        return True
    ratio = int(numbers[0][1]) / int(numbers[1][1])
    return not 1 / 4 < ratio < 4


def balanced_list_count(item_count: int) -> int:
    """Returns the power of two nearest to 2 √n lists, so that lists and list lengths balance."""
    exponent = round(math.log2(2 * math.sqrt(max(item_count, 1))))
    return min(max(1 << exponent, _MIN_LIST_COUNT), _MAX_LIST_COUNT)


def fetch_count(index: FaissIndex, k: int) -> int:
    """Returns how many candidates to compare exactly for k hits; coarse codes need more."""
    if index.codes_are_exact:
        return k + 1
    if _BITS in index.index_type and not index.is_refined:
        return 3 * k + 140
    return max(4 * k, 100) if ",PQ" in f",{index.index_type}" else max(2 * k, k + 20)
