"""Defines the encoder of a search: contents in, encodings out."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.errors import TandemError


class EncodePurpose(enum.Enum):
    """Says what an encoding is for; names are the contract's."""

    QUERY = "query"
    INGEST = "ingest"


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBatch:
    """Holds what the encoder made of several contents."""

    outcomes: Sequence[Encoding | TandemError]
    """An encoding, or why there is none, for each content."""
    fingerprint: str
    cost: InferenceCost = field(default_factory=InferenceCost)
    is_model_unavailable: bool = False
    """The encodings come from the encoder's cache."""
    model_version: int = 0
    """The version that encoded all of them; 0 if none did, or the encoder does not name it."""
    preprocess_seconds: float = 0.0
    inference_seconds: float = 0.0


class ContentEncoder(Protocol):
    """Encodes contents, as encoder_svc does; `EncoderClient` says what it raises."""

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns each content's encoding or error."""
        ...
