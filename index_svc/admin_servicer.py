"""Serves IndexAdminService: tunes, rebuilds and measures a shard's indexes, and backs it up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import grpc

from index_svc.move_servicer import MoveServicer
from index_svc.shard_backup import ShardBackups
from tandem.contract.content import Modality
from tandem.contract.field_wire import DURATION_WIRE, MODALITY_WIRE
from tandem.contract.identifiers import check_index_id
from tandem.contract.record_wire import Field, RecordWire
from tandem.errors import RequestMalformed
from tandem.local.shard.retrieval.faiss_threads import faiss_threads
from tandem.local.shard.retrieval.index_type import AUTO, IndexTuning
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.upkeep.advice import MeasuredType, measure_types
from tandem.stages.shard import FollowedShard
from tandem.v1 import index_admin_service_pb2 as pb

_DEFAULT_RECALL_TARGET = 0.98


class IndexAdminServicer(MoveServicer):
    """Serves a shard's operators over gRPC."""

    def __init__(
        self,
        shard: StoredShard,
        backups: ShardBackups,
        followed: FollowedShard,
        shard_map_version: int,
    ) -> None:
        super().__init__(followed, shard_map_version)
        self._shard = shard
        self._backups = backups
        # One at a time: two would distort each other's measurements.
        self._advice_thread = faiss_threads(1, "advice")

    async def DescribeIndexes(
        self, request: pb.DescribeIndexesRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeIndexesResponse:
        """Describes the state of each index of the shard."""
        indexes = self._shard.indexes()
        if request.index_id:
            index_id = check_index_id(request.index_id)
            indexes = {index_id: self._shard.index(index_id)}
        descriptions = await asyncio.to_thread(
            lambda: [
                self._describe(index_id, index, modality)
                for index_id, index in sorted(indexes.items())
                for modality in Modality
            ]
        )
        return pb.DescribeIndexesResponse(
            descriptions=descriptions, applied_sequence=self._shard.applied_sequence
        )

    async def TuneIndex(
        self, request: pb.TuneIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.TuneIndexResponse:
        """Sets the FAISS type or search parameters of an index."""
        index_id = check_index_id(request.index_id)
        index = self._shard.index(index_id)
        tuning = _TUNING_WIRE.from_proto(request.tuning)
        await asyncio.to_thread(tuning.check, index.info.dimension)
        for modality in _modalities(request.modality):
            await asyncio.to_thread(self._tune, index_id, index, modality, tuning)
        self._shard.maintenance.wake(index_id)
        return pb.TuneIndexResponse()

    async def RebuildIndex(
        self, request: pb.RebuildIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.RebuildIndexResponse:
        """Requests that an index is rebuilt soon."""
        index_id = check_index_id(request.index_id)
        self._shard.index(index_id)
        for modality in _modalities(request.modality):
            self._shard.maintenance.ask_rebuild(index_id, modality, "operator")
        return pb.RebuildIndexResponse()

    async def AdviseIndexType(
        self, request: pb.AdviseIndexTypeRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.AdviseIndexTypeResponse]:
        """Measures one FAISS type after another, until the caller cancels."""
        index = self._shard.index(check_index_id(request.index_id))
        modality = MODALITY_WIRE.from_proto(request.modality)
        if modality is None:
            raise RequestMalformed(why="modality is neither MODALITY_TEXT nor MODALITY_IMAGE")
        tuning = IndexTuning(
            recall_target=request.recall_target or _DEFAULT_RECALL_TARGET,
            memory_bytes=request.memory_bytes,
        )
        tuning.check(index.info.dimension)
        has_gone = threading.Event()
        measured = measure_types(
            index, modality, tuning, list(request.index_types), has_gone.is_set
        )
        loop = asyncio.get_running_loop()
        try:
            while one := await loop.run_in_executor(self._advice_thread, next, measured, None):
                yield _MEASURED_WIRE.to_proto(one)
        finally:
            has_gone.set()

    async def BackUpShard(
        self, request: pb.BackUpShardRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.BackUpShardResponse]:
        """Backs up the shard, until the caller cancels."""
        async with aclosing(self._backups.back_up(request.folder)) as responses:
            async for response in responses:
                yield response

    def _tune(
        self, index_id: str, index: SearchableIndex, modality: Modality, tuning: IndexTuning
    ) -> None:
        with index.changing():
            part = index.part(modality)
            if (
                part.faiss_index is not None
                and tuning.parameters
                and tuning.index_type
                in (
                    AUTO,
                    part.index_type,
                )
            ):
                part.faiss_index.tune(tuning.parameters)
        self._shard.tunings.put(index_id, modality, tuning)
        self._shard.live_recall.forget(index_id)

    def _describe(
        self, index_id: str, index: SearchableIndex, modality: Modality
    ) -> pb.IndexDescription:
        maintenance = self._shard.maintenance
        with index.reading():
            part = index.part(modality)
            faiss_index = part.faiss_index
            return pb.IndexDescription(
                index_id=index_id,
                modality=MODALITY_WIRE.to_proto(modality),
                model_fingerprint=index.info.fingerprint,
                dimension=index.info.dimension,
                item_count=len(part),
                dead_row_count=part.rows.dead_count,
                tail_row_count=part.tail_count,
                index_type=part.index_type,
                tuning=_TUNING_WIRE.to_proto(self._shard.tunings.get(index_id, modality)),
                parameters={} if faiss_index is None else faiss_index.parameters,
                index_bytes=0 if faiss_index is None else faiss_index.size_bytes(),
                built_recall_percent=part.recall_percent,
                list_imbalance=None if faiss_index is None else faiss_index.list_imbalance(),
                device="cpu" if faiss_index is None else faiss_index.device,
                fallback_reason=part.fallback.why,
                activity=maintenance.activity(index_id, modality),
                snapshot_sequence=maintenance.snapshots.sequence(index_id, modality),
                live_recalls={
                    direction: pb.LiveRecall(recall=recall, search_count=count)
                    for direction, (recall, count) in self._shard.live_recall.recall(
                        index_id
                    ).items()
                    if direction.endswith(modality.value)
                },
            )


def _modalities(value: int) -> Sequence[Modality]:
    modality = MODALITY_WIRE.from_proto(value)
    return list(Modality) if modality is None else [modality]


_TUNING_WIRE = RecordWire(
    IndexTuning,
    pb.IndexTuning,
    index_type=Field[str, str](str, lambda index_type: index_type or AUTO),
    recall_target=Field[float, float](float, lambda target: target or _DEFAULT_RECALL_TARGET),
)
_MEASURED_WIRE = RecordWire(
    MeasuredType,
    pb.AdviseIndexTypeResponse,
    search_p50_seconds=DURATION_WIRE.named("search_p50_duration"),
    search_p99_seconds=DURATION_WIRE.named("search_p99_duration"),
    build_seconds=DURATION_WIRE.named("build_duration"),
)
