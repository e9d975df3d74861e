"""States what the scores of an index mean, and converts it from and to messages.

Scores are comparable if one scorer gave them in one direction. A *null score* is the best score of
a query whose answers are not in the index.
"""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields

from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.modality import Modality
from tandem.contract.model_description import CALIBRATION_WIRE, ProbabilityCalibration
from tandem.contract.record_wire import Field, RecordWire
from tandem.errors import RequestMalformed, Uncalibrated
from tandem.v1 import score_calibration_pb2 as pb

BI_ENCODER = "bi-encoder"
"""The scorer of similarities."""
MAX_NULL_SCORE_COUNT = 2_000
"""A rate of 0.01 needs 99; more only make the threshold steadier."""
_MAX_CALIBRATION_COUNT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreKind:
    """Names scores that are comparable with each other."""

    model_fingerprint: str
    query_modality: Modality
    target_modality: Modality
    scorer: str = BI_ENCODER
    """The cross-encoder's identity, as a rerank's summary has it."""
    model_version: int = 0
    """That scored; 0 for the bi-encoder, of which versions have the same embeddings."""
    hybrid: bool = False
    """Whether words found candidates too; the bi-encoder's best is the same with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCalibration(ScoreKind):
    """What scores of one kind mean in one index.

    Raises RequestMalformed.
    """

    probability_calibration: ProbabilityCalibration | None = None
    """None for the bi-encoder."""
    first_probability_calibration: ProbabilityCalibration | None = None
    """Of the item that an answer shows first; None if it has the one of the others."""
    calibration_error: float | None = None
    """The expected calibration error on queries that the fit did not see."""
    null_scores: tuple[float, ...] = ()
    """From the lowest."""
    rerank_k: int = 0
    """The candidates among which each best score was sought; 0 for the bi-encoder."""
    query_count: int = 0
    item_count: int = 0
    """The items of the target modality then: more of them have higher null scores."""
    measured_date: str = ""
    measured_by: str = ""

    def __post_init__(self) -> None:
        numbers = [*self.null_scores]
        for scaling in (self.probability_calibration, self.first_probability_calibration):
            numbers += (scaling.scale, scaling.bias) if scaling else ()
            if scaling and scaling.scale <= 0:
                raise RequestMalformed(
                    why="a calibration's scale is not above 0: it turns the order"
                )
        if not all(map(math.isfinite, numbers)):
            raise RequestMalformed(why="a calibration has a number that is not finite")
        if len(self.null_scores) > MAX_NULL_SCORE_COUNT:
            raise RequestMalformed(why=f"a calibration has over {MAX_NULL_SCORE_COUNT} null scores")

    @property
    def kind(self) -> ScoreKind:
        """The scores that it is of."""
        return ScoreKind(**{each.name: getattr(self, each.name) for each in fields(ScoreKind)})

    def threshold(self, max_false_answer_rate: float) -> float:
        """Returns the score above which an item is shown.

        Conformal: a new query without an answer is as likely to have the highest of n + 1 scores
        as any of the n null ones. So an item is shown only if (1 + the null scores at least as
        high) / (n + 1) is at most the rate (Vovk, Gammerman and Shafer 2005). Raises Uncalibrated
        if n is too small for the rate.
        """
        count = len(self.null_scores)
        # Without the term, 0.07 x 100 would be below 7.
        higher_count = math.floor(max_false_answer_rate * (count + 1) + 1e-9) - 1
        if higher_count < 0:
            raise Uncalibrated(
                what=f"max_false_answer_rate {max_false_answer_rate:g}",
                why=f"{count} null scores were measured, and it takes "
                f"{math.ceil(1 / max_false_answer_rate - 1e-9) - 1}",
            )
        return self.null_scores[count - 1 - min(higher_count, count - 1)]


def calibrations_with(
    kept: Iterable[ScoreCalibration], measured: Iterable[ScoreCalibration]
) -> tuple[ScoreCalibration, ...]:
    """Returns what is kept, each replaced by one of its kind that was measured.

    The oldest are dropped where there would be more than a note holds.
    """
    by_kind = {each.kind: each for each in kept}
    for each in measured:
        by_kind.pop(each.kind, None)
        by_kind[each.kind] = each
    return tuple(by_kind.values())[-_MAX_CALIBRATION_COUNT:]


def _scores_to_proto(scores: Iterable[float]) -> bytes:
    values = tuple(scores)
    return struct.pack(f"<{len(values)}f", *values)


def _scores_from_proto(message: bytes) -> tuple[float, ...]:
    try:
        return tuple(sorted(struct.unpack(f"<{len(message) // 4}f", message)))
    except struct.error:
        raise RequestMalformed(why="null_scores are not float32 values") from None


def _modality(value: int) -> Modality:
    if (found := MODALITY_WIRE.from_proto(value)) is None:
        raise RequestMalformed(why="a calibration has no query_modality or no target_modality")
    return found


_MODALITY_WIRE = Field(MODALITY_WIRE.to_proto, _modality)
SCORE_CALIBRATION_WIRE = RecordWire(
    ScoreCalibration,
    pb.ScoreCalibration,
    query_modality=_MODALITY_WIRE,
    target_modality=_MODALITY_WIRE,
    probability_calibration=CALIBRATION_WIRE,
    first_probability_calibration=CALIBRATION_WIRE,
    null_scores=Field(_scores_to_proto, _scores_from_proto),
)
