"""Lists the ways to fuse scores and lists, and describes hybrid searches."""

import enum
from dataclasses import dataclass

from tandem.contract.record_wire import RecordWire
from tandem.v1 import search_service_pb2 as pb


class FusionMethod(enum.Enum):
    """The contract's methods of score fusion (Geigle et al. 2022, section 6)."""

    CROSS_ENCODER = "cross_encoder"
    ADD = "add"
    NORMALISED_ADD = "normalised_add"
    LOGIT_ADD = "logit_add"
    """Adds the logit itself, as BLIP's authors do (train_retrieval.py of salesforce/BLIP)."""


class HybridFusion(enum.Enum):
    """Names the ways to fuse the nearest items with those that words found."""

    RECIPROCAL_RANK = "reciprocal_rank"
    Z_SCORE = "z_score"
    DISTRIBUTION = "distribution"


@dataclass(frozen=True, slots=True)
class HybridRank:
    """Holds an item's places in the two lists of a hybrid search."""

    similarity_rank: int | None
    """Among the nearest items, from 1; None if it is not one of them."""
    keyword_rank: int | None
    """Among the items that the words found."""
    keyword_score: float | None
    """BM25, by the word statistics of the item's shard."""
    fused_score: float
    """The sort key before the rerank."""


HYBRID_RANK_WIRE = RecordWire(HybridRank, pb.HybridRank)
