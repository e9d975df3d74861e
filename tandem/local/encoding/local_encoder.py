"""Encodes in this process, and counts it."""

from collections.abc import Callable, Sequence

from tandem.chassis.telemetry.metrics import Counter, kept_series, stage_histogram
from tandem.chassis.telemetry.tracing import exemplar
from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_CONTENT_COUNT, check_batch_size
from tandem.contract.model_description import ModelDescription
from tandem.errors import TandemError
from tandem.local.encoding.encoder import ModelEncoder
from tandem.local.encoding.query_encodings import QueryEncodings
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder

_STAGE_DURATION_OF = kept_series(stage_histogram("encoder"))
_TRUNCATED_TEXTS_OF = kept_series(
    Counter(
        "tandem_encoder_truncated_texts_total",
        "Texts that were truncated, by truncation policy.",
        ["policy"],
    )
)


class LocalEncoder(Encoder):
    """Encodes items with a model, and queries through a cache of its encodings."""

    def __init__(
        self,
        encoder: ModelEncoder,
        queries: QueryEncodings,
        describe: Callable[[], ModelDescription],
    ) -> None:
        self._encoder = encoder
        self._queries = queries
        self._describe = describe

    async def encode(
        self,
        contents: Sequence[Content | TandemError],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns each content's encoding or error; an input that is an error stays one."""
        check_batch_size("contents", len(contents), MAX_CONTENT_COUNT)
        is_query = purpose is EncodePurpose.QUERY
        encode = self._queries.encode if is_query else self._encoder.encode
        async with deadline.kept("the call of EncodeContents"):
            encoded = await encode(contents, deadline.left(), truncation_policy)
        uses = (each.text_use for each in encoded.outcomes if isinstance(each, Encoding))
        truncated_count = sum(use is not None and use.is_truncated for use in uses)
        _TRUNCATED_TEXTS_OF(truncation_policy.value).inc(truncated_count)
        _STAGE_DURATION_OF("preprocess").observe(encoded.preprocess_seconds, exemplar())
        _STAGE_DURATION_OF("inference").observe(encoded.inference_seconds, exemplar())
        return encoded

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        return self._describe()
