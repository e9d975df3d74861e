"""Defines the encoder of a search: contents in, encodings out."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import ModelDescription
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


class Encoder(Protocol):
    """Encodes contents: here, or behind a socket."""

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns the encoding or error of each of 1 to MAX_CONTENT_COUNT contents.

        Raises BatchSizeOutOfRange, DeadlineExceeded, and errors of the model.
        """

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that encodes."""
