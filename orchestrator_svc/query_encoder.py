"""A query's parts into what retrieval and rerank read."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.clients import EncoderClient
from orchestrator_svc.query import SearchQuery
from tandem.content import ImageContent, Modality, TextContent, TextUse, Tokens
from tandem.errors import QueryInvalid
from tandem.inference_cost import InferenceCost


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """A query as the models see it."""

    embeddings: Sequence[NDArray[np.float32]]
    """float32 [d] of unit length: one, or one for each window of a long text."""
    modality: Modality
    """What recall is measured by: of the heaviest part."""
    tokens: Tokens | None
    """For the cross-encoder; None where there is nothing that it could read."""
    fingerprint: str
    text_uses: Sequence[TextUse] = ()
    cost: InferenceCost = field(default_factory=InferenceCost)
    is_model_unavailable: bool = False
    """The encoding was kept from an earlier call."""


class QueryEncoder:
    """Makes one point of a query's parts."""

    def __init__(self, encoder: EncoderClient) -> None:
        self._encoder = encoder

    async def encode(self, query: SearchQuery, deadline_time: float) -> EncodedQuery:
        """Returns the query's encoding; raises what is wrong with it, or with the way there."""
        match [part.source for part in query.parts]:
            case [TextContent() | ImageContent() as content]:
                encoding, fingerprint = await self._encoder.encode_one(content, deadline_time)
            case _:
                raise QueryInvalid(why="send one text or one image")
        tokens = encoding.tokens
        return EncodedQuery(
            embeddings=[encoding.embedding],
            modality=tokens.modality,
            # The cross-encoder reads a text and an image: of two of a kind it can say nothing.
            tokens=tokens if tokens.modality is not query.target_modality else None,
            fingerprint=fingerprint,
            text_uses=[encoding.text_use] if encoding.text_use else [],
        )
