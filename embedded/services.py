"""Puts the rooms of all services together over one folder, as their own processes do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from embedded.model_folder import ModelFolder
from encoder_svc.settings import EncoderSettings
from index_svc.corrupt_shard import damage_of
from index_svc.settings import IndexSettings
from index_svc.shard_settings import shard_settings
from orchestrator_svc.assembly import guarded_stages, make_orchestrator
from orchestrator_svc.settings import OrchestratorSettings
from rerank_svc.settings import RerankSettings
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.model_description import ModelDescription
from tandem.encoding.encoder import ModelEncoder
from tandem.encoding.local_encoder import LocalEncoder
from tandem.encoding.query_encodings import QueryEncodings
from tandem.inference.served_model import ServedModel
from tandem.inference.served_neighbour_model import ServedNeighbourModel
from tandem.inference.served_texts import ServedTexts
from tandem.item_store.item_store import ItemStore
from tandem.item_store.refused import StoreDamaged
from tandem.modeling.in_process.in_process_runner import InProcessRunner
from tandem.repository.followed_version import FollowedVersion
from tandem.repository.neighbour_manifest import neighbour_manifest_of
from tandem.reranking.local_reranker import LocalReranker
from tandem.reranking.neighbour_scorer import NeighbourScorer
from tandem.reranking.reranker import ModelReranker
from tandem.shard.local_shard import LocalShard
from tandem.shard.retrieval.faiss_threads import faiss_threads
from tandem.shard.shard import StoredShard
from tandem.stages.encoding import Encoder
from tandem.stages.reranking import Reranker
from tandem.stages.shard import Shard

# For settings that require an address: these are never called.
_HERE = "in-process"
# Of a larger store, pages on the way to keys are checked, and records alongside searches: checking
# all of 10,000 pictures' 400 MiB takes most of the time of opening them.
_CHECKED_BYTES = 64 << 20


class InProcessServices:
    """Holds the servicers of every service, and what they stand on."""

    def __init__(
        self,
        find_model: Callable[[], ModelFolder],
        shard_folders: Sequence[Path],
        *,
        caches: bool = True,
        orchestrator: OrchestratorSettings | None = None,
    ) -> None:
        """Opens the stores; `runner` loads the model on request.

        Finds the model while the stores are checked. Calls are answered after `start`. Raises
        StoreRefused for a store that may not be opened, what `find_model` raises, and
        ModuleNotFoundError for a package that is not installed.
        """
        self._open = ExitStack()
        self._rerankers: list[ModelReranker] = []
        try:
            self._model, self._shards = self._found_and_opened(find_model, shard_folders)
            model = self._model
            self.runner = InProcessRunner(model.repository, model.manifest)
            self._open.callback(self.runner.close)
            self._version = FollowedVersion(model.repository, model.manifest)
            self._served = ServedModel(self.runner, model.manifest, instances=self.runner.instances)
            self.settings = orchestrator or orchestrator_settings(len(self._shards))
            self.stages = guarded_stages(
                self.settings,
                self._local_encoder(caches),
                [self._local_shard(shard) for shard, _ in self._shards],
                [self._local_reranker(store, caches) for _, store in self._shards],
            )
            self.orchestrator = make_orchestrator(self.settings, self.stages)
        except BaseException:
            self._open.close()
            raise

    @property
    def has_pairs(self) -> bool:
        """Returns whether the model has a cross-encoder."""
        return self._model.manifest.has_pairs

    async def start(self) -> None:
        """Opens what opens in the event loop."""
        for reranker in self._rerankers:
            await reranker.open()

    def close(self) -> None:
        """Commits what was submitted, and closes the stores; no call may be in progress."""
        self._open.close()

    def _found_and_opened(
        self, find_model: Callable[[], ModelFolder], folders: Sequence[Path]
    ) -> tuple[ModelFolder, list[tuple[StoredShard, ItemStore]]]:
        settings = [_index_settings(number, folders) for number in range(len(folders))]
        with ThreadPoolExecutor(len(folders), "open") as threads:
            checks = [threads.submit(_check_sound, each) for each in settings]
            # In this thread, as an export may take seconds and is interrupted with it.
            model = find_model()
            for check in checks:
                check.result()
            shards = [self._shard(each) for each in settings]
            list(threads.map(lambda opened: opened[0].load(), shards))
        return model, shards

    def _shard(self, settings: IndexSettings) -> tuple[StoredShard, ItemStore]:
        path = Path(settings.store_path)
        store = ItemStore.open(path, settings.shard_number, settings.shard_count)
        self._open.callback(store.close)
        shard = StoredShard(store, path, shard_settings(settings, None))
        self._open.callback(shard.close)
        return shard, store

    def _local_encoder(self, caches: bool) -> Encoder:
        settings = EncoderSettings(
            triton_address=_HERE, model_repository=str(self._model.repository)
        )
        threads = self._threads(settings.thread_count, "preprocess")
        turns = CallerTurns(threads, settings.thread_count)
        texts = ServedTexts.open(self._model.repository, self._model.manifest)
        encoder = ModelEncoder(self._served, texts, turns, self._version.number)
        queries = QueryEncodings(encoder, turns, settings.query_cache_bytes if caches else 0)
        return LocalEncoder(encoder, queries, self._version.describe)

    def _local_shard(self, shard: StoredShard) -> Shard:
        threads = faiss_threads(2, "shard")
        self._open.callback(threads.shutdown)
        return LocalShard(shard, threads)

    def _local_reranker(self, store: ItemStore, caches: bool) -> Reranker:
        settings = _rerank_settings(self._model.repository)
        turns = CallerTurns(self._threads(settings.thread_count, "read"), settings.thread_count)
        reranker = ModelReranker(
            self._served,
            # The shard's own: LMDB opens a store once in a process.
            lambda: store,
            turns,
            cache_bytes=settings.score_cache_bytes if caches else 0,
            token_cache_bytes=settings.token_cache_bytes,
            calibration_of=self._version.calibration,
            serving_version=self._version.number,
        )
        self._rerankers.append(reranker)
        neighbour_scorer = self._neighbour_scorer()

        def describe() -> ModelDescription:
            description = self._version.describe()
            if neighbour_scorer is None:
                return description
            return replace(description, neighbour_model=neighbour_scorer.describe())

        return LocalReranker(reranker, describe, neighbour_scorer)

    def _neighbour_scorer(self) -> NeighbourScorer | None:
        manifest = neighbour_manifest_of(self._model.repository)
        if manifest is None:
            return None
        return NeighbourScorer(ServedNeighbourModel(self.runner, manifest))

    def _threads(self, count: int, name: str) -> Executor:
        threads = ThreadPoolExecutor(count, name)
        self._open.callback(threads.shutdown)
        return threads


def orchestrator_settings(shard_count: int) -> OrchestratorSettings:
    """Returns the defaults of the orchestrator, over services of this process."""
    here = (_HERE,) * shard_count
    return OrchestratorSettings(encoder_address=_HERE, index_addresses=here, rerank_addresses=here)


def _index_settings(number: int, folders: Sequence[Path]) -> IndexSettings:
    return IndexSettings(
        store_path=str(folders[number]),
        shard_number=number,
        shard_count=len(folders),
        checked_at_start_bytes=_CHECKED_BYTES,
    )


def _rerank_settings(repository: Path) -> RerankSettings:
    return RerankSettings(
        triton_address=_HERE,
        model_repository=str(repository),
        store_path=_HERE,
        shard_number=0,
        shard_count=1,
    )


def _check_sound(settings: IndexSettings) -> None:
    """Raises StoreDamaged; in a child process, since reading a damaged page may kill this one."""
    damage = damage_of(Path(settings.store_path), settings.checked_at_start_bytes)
    if damage:
        raise StoreDamaged(
            f"{settings.store_path} is damaged ({damage[0]}): restore it from a backup"
        )
