"""RerankService: messages in, Reranker, messages out."""

import grpc

from rerank_svc.metrics import PAIRS_SCORED, observe_stage
from rerank_svc.reranker import MatchScore, Reranker
from tandem.chassis.channels import deadline_seconds
from tandem.errors import BatchSizeOutOfRange
from tandem.identifiers import check_index_id, check_item_id
from tandem.v1 import rerank_service_pb2, rerank_service_pb2_grpc
from tandem.wire import duration_to_proto, tokens_from_proto

MAX_CANDIDATE_COUNT = 200


class RerankServicer(rerank_service_pb2_grpc.RerankServiceServicer):
    """Scores candidates; does not sort them."""

    def __init__(self, reranker: Reranker, default_timeout_seconds: float) -> None:
        self._reranker = reranker
        self._default_timeout_seconds = default_timeout_seconds

    async def ScoreCandidates(
        self,
        request: rerank_service_pb2.ScoreCandidatesRequest,
        context: grpc.aio.ServicerContext,
    ) -> rerank_service_pb2.ScoreCandidatesResponse:
        """Scores one query's candidates."""
        if not 1 <= len(request.item_ids) <= MAX_CANDIDATE_COUNT:
            raise BatchSizeOutOfRange(
                name="item_ids", got=len(request.item_ids), low=1, high=MAX_CANDIDATE_COUNT
            )
        scored = await self._reranker.score(
            check_index_id(request.index_id),
            tokens_from_proto(request.query),
            request.model_fingerprint,
            [check_item_id(item_id) for item_id in request.item_ids],
            deadline_seconds(context, self._default_timeout_seconds),
        )
        observe_stage("read", scored.read_seconds)
        observe_stage("inference", scored.inference_seconds)
        PAIRS_SCORED.inc(sum(score is not None for score in scored.scores))
        return rerank_service_pb2.ScoreCandidatesResponse(
            scores=[_score(score) for score in scored.scores],
            read_duration=duration_to_proto(scored.read_seconds),
            inference_duration=duration_to_proto(scored.inference_seconds),
        )


def _score(score: MatchScore | None) -> rerank_service_pb2.CandidateScore:
    if score is None:
        return rerank_service_pb2.CandidateScore()
    return rerank_service_pb2.CandidateScore(
        match_logit=score.logit, match_probability=score.probability
    )
