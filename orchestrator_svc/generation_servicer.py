"""GenerationService: changes the model of an index while it serves."""

import grpc

from orchestrator_svc.call_deadline import CallDeadline
from tandem.chassis.access.callers import caller_of
from tandem.chassis.telemetry.log import get_logger
from tandem.errors import GenerationRefused
from tandem.search.indexes.generations import GenerationStatus
from tandem.search.indexes.kept_generations import DROP, PROMOTE, ROLL_BACK, followed_generation
from tandem.search.orchestrator import Orchestrator
from tandem.stages.aliases import AliasRecord
from tandem.v1 import generation_service_pb2 as pb
from tandem.v1 import generation_service_pb2_grpc

log = get_logger()


class GenerationServicer(generation_service_pb2_grpc.GenerationServiceServicer):
    """Serves operators; each request that changes what serves is logged with its caller."""

    def __init__(self, orchestrator: Orchestrator, deadline: CallDeadline) -> None:
        self.orchestrator = orchestrator
        self._deadline = deadline

    async def CreateGeneration(
        self, request: pb.CreateGenerationRequest, context: grpc.aio.ServicerContext
    ) -> pb.CreateGenerationResponse:
        """Begins a generation of the second model."""
        deadline = self._deadline.of_call(context)
        made = await self.orchestrator.generations.create(request.index_id, deadline)
        log.info("generation created", index_id=made.index_id, caller=caller_of(context.peer()))
        return pb.CreateGenerationResponse(
            index_id=made.index_id, model_fingerprint=made.fingerprint
        )

    async def ListGenerations(
        self, request: pb.ListGenerationsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListGenerationsResponse:
        """Returns aliases and how far their generations are."""
        deadline, generations = self._deadline.of_call(context), self.orchestrator.generations
        return pb.ListGenerationsResponse(
            aliases=[
                _alias(record, await generations.statuses(record, deadline))
                for record in await generations.records(request.index_id, deadline)
            ]
        )

    async def PromoteGeneration(
        self, request: pb.PromoteGenerationRequest, context: grpc.aio.ServicerContext
    ) -> pb.PromoteGenerationResponse:
        """Has the other generation serve."""
        if bool(request.evidence) == bool(request.ungated_why):
            raise GenerationRefused(
                why="a promotion needs the figures of judged queries, or a reason to go without"
            )
        why = request.evidence or f"ungated: {request.ungated_why}"
        serving = await self._ask(PROMOTE, request.index_id, why, context)
        return pb.PromoteGenerationResponse(index_id=serving)

    async def RollBackGeneration(
        self, request: pb.RollBackGenerationRequest, context: grpc.aio.ServicerContext
    ) -> pb.RollBackGenerationResponse:
        """Has the generation before serve again."""
        serving = await self._ask(ROLL_BACK, request.index_id, request.why, context)
        return pb.RollBackGenerationResponse(index_id=serving)

    async def DropGeneration(
        self, request: pb.DropGenerationRequest, context: grpc.aio.ServicerContext
    ) -> pb.DropGenerationResponse:
        """Deletes a generation that does not serve."""
        await self._ask(DROP, request.index_id, "", context)
        return pb.DropGenerationResponse()

    async def _ask(
        self, kind: str, index_id: str, why: str, context: grpc.aio.ServicerContext
    ) -> str:
        deadline, caller = self._deadline.of_call(context), caller_of(context.peer())
        log.info("generation request", kind=kind, index_id=index_id, why=why, caller=caller)
        return await self.orchestrator.generations.ask(kind, index_id, why, caller, deadline)


def _alias(record: AliasRecord, statuses: list[GenerationStatus]) -> pb.AliasGenerations:
    counts = {each.generation.index_id: each.item_count for each in statuses}
    return pb.AliasGenerations(
        index_id=record.alias,
        serving_id=record.serving,
        generations=[_generation(record, each, counts[record.serving]) for each in statuses],
        rolled_back_why=record.rolled_back_why,
        last_outcome=record.outcome.text if record.outcome else "",
    )


def _generation(record: AliasRecord, status: GenerationStatus, serving_count: int) -> pb.Generation:
    at = status.progress
    waits_for = next((each.waits_for for each in at if each.waits_for), "")
    is_scanned = bool(at) and all(each.is_scanned for each in at)
    scanned_count = sum(each.scanned_count for each in at)
    rate = sum(each.items_per_second for each in at if not each.is_scanned)
    left = max(serving_count - scanned_count, 0)
    return pb.Generation(
        index_id=status.generation.index_id,
        model_fingerprint=status.generation.fingerprint,
        state=_state(record, status, waits_for, is_scanned=is_scanned),
        item_count=status.item_count,
        scanned_count=scanned_count,
        remaining_seconds=left / rate if rate > 0 else None,
        lag_count=status.lag_count,
        waits_for=waits_for,
        failed_items={name: why for each in at for name, why in each.failed.items()},
        created_time=status.generation.created_time,
        truncated_count=sum(each.truncated_count for each in at),
    )


def _state(
    record: AliasRecord, status: GenerationStatus, waits_for: str, *, is_scanned: bool
) -> pb.GenerationState:
    index_id = status.generation.index_id
    if index_id == record.serving:
        return pb.GENERATION_STATE_SERVING
    if index_id != followed_generation(record):
        return pb.GENERATION_STATE_LEFT
    if not status.is_complete:
        return pb.GENERATION_STATE_UNSPECIFIED
    if waits_for:
        return pb.GENERATION_STATE_WAITING
    return pb.GENERATION_STATE_FOLLOWING if is_scanned else pb.GENERATION_STATE_SCANNING
