"""Puts all stages of a search together over one folder, as the services do it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.model_description import ModelDescription
from tandem.engine.model_folder import ModelFolder
from tandem.local.encoding.encoder import ModelEncoder
from tandem.local.encoding.local_encoder import LocalEncoder
from tandem.local.encoding.query_encodings import QueryEncodings
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreDamaged
from tandem.local.item_store.verdict import damage_of
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.local_reranker import LocalReranker
from tandem.local.reranking.reranker import ModelReranker
from tandem.local.shard.local_shard import LocalShard
from tandem.local.shard.retrieval.faiss_threads import faiss_threads
from tandem.local.shard.settings import ShardSettings
from tandem.local.shard.shard import StoredShard
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_neighbour_model import ServedNeighbourModel
from tandem.model_io.inference.served_texts import ServedTexts
from tandem.model_io.repository.followed_version import FollowedVersion
from tandem.model_io.repository.neighbour_manifest import neighbour_manifest_of
from tandem.modeling.in_process.in_process_runner import InProcessRunner
from tandem.search.assembly import guarded_stages, make_orchestrator
from tandem.search.settings import SearchSettings
from tandem.stages.encoding import Encoder
from tandem.stages.reranking import Reranker
from tandem.stages.shard import Shard

# As services by default.
_THREAD_COUNT = 2
_CACHE_BYTES = 64 << 20
_TOKEN_CACHE_BYTES = 256 << 20
# Of a larger store, pages on the way to keys are checked, and records alongside searches: checking
# all of 10,000 pictures' 400 MiB takes most of the time of opening them.
_CHECKED_BYTES = 64 << 20


class LocalStages:
    """Holds the orchestrator of a folder, its stages, and what they stand on."""

    def __init__(
        self,
        find_model: Callable[[], ModelFolder],
        shard_folders: Sequence[Path],
        *,
        caches: bool = True,
        settings: SearchSettings | None = None,
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
            settings = settings or SearchSettings()
            self.stages = guarded_stages(
                settings,
                self._local_encoder(caches),
                [self._local_shard(shard) for shard, _ in self._shards],
                [self._local_reranker(store, caches) for _, store in self._shards],
            )
            self.orchestrator = make_orchestrator(settings, self.stages)
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
        with ThreadPoolExecutor(len(folders), "open") as threads:
            checks = [threads.submit(_check_sound, each) for each in folders]
            # In this thread, as an export may take seconds and is interrupted with it.
            model = find_model()
            for check in checks:
                check.result()
            shards = [self._shard(number, folders) for number in range(len(folders))]
            list(threads.map(lambda opened: opened[0].load(), shards))
        return model, shards

    def _shard(self, number: int, folders: Sequence[Path]) -> tuple[StoredShard, ItemStore]:
        path = folders[number]
        store = ItemStore.open(path, number, len(folders))
        self._open.callback(store.close)
        settings = ShardSettings(checked_at_start_bytes=_CHECKED_BYTES)
        shard = StoredShard(store, path, settings)
        self._open.callback(shard.close)
        return shard, store

    def _local_encoder(self, caches: bool) -> Encoder:
        turns = CallerTurns(self._threads(_THREAD_COUNT, "preprocess"), _THREAD_COUNT)
        texts = ServedTexts.open(self._model.repository, self._model.manifest)
        encoder = ModelEncoder(self._served, texts, turns, self._version.number)
        queries = QueryEncodings(encoder, turns, _CACHE_BYTES if caches else 0)
        return LocalEncoder(encoder, queries, self._version.describe)

    def _local_shard(self, shard: StoredShard) -> Shard:
        threads = faiss_threads(2, "shard")
        self._open.callback(threads.shutdown)
        return LocalShard(shard, threads)

    def _local_reranker(self, store: ItemStore, caches: bool) -> Reranker:
        turns = CallerTurns(self._threads(_THREAD_COUNT, "read"), _THREAD_COUNT)
        reranker = ModelReranker(
            self._served,
            # The shard's own: LMDB opens a store once in a process.
            CandidateReader(lambda: store, turns, self._model.manifest.fingerprint),
            turns,
            cache_bytes=_CACHE_BYTES if caches else 0,
            token_cache_bytes=_TOKEN_CACHE_BYTES,
            calibration_of=self._version.calibration,
            serving_version=self._version.number,
        )
        self._rerankers.append(reranker)
        neighbour_model = self._neighbour_model()

        def describe() -> ModelDescription:
            description = self._version.describe()
            if neighbour_model is None:
                return description
            return replace(description, neighbour_model=neighbour_model.manifest.describe())

        return LocalReranker(reranker, describe, neighbour_model)

    def _neighbour_model(self) -> ServedNeighbourModel | None:
        manifest = neighbour_manifest_of(self._model.repository)
        if manifest is None:
            return None
        return ServedNeighbourModel(self.runner, manifest)

    def _threads(self, count: int, name: str) -> Executor:
        threads = ThreadPoolExecutor(count, name)
        self._open.callback(threads.shutdown)
        return threads


def _check_sound(folder: Path) -> None:
    """Raises StoreDamaged; in a child process, since reading a damaged page may kill this one."""
    if damage := damage_of(folder, _CHECKED_BYTES):
        raise StoreDamaged(f"{folder} is damaged ({damage[0]}): restore it from a backup")
