"""Takes a shard's part of the settings of index_svc."""

from index_svc.settings import IndexSettings
from tandem.local.shard.memory_limit import MemoryLimit
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.shard import ShardSettings


def shard_settings(settings: IndexSettings, gpu_number: int | None) -> ShardSettings:
    """Returns the shard's part of the settings."""
    return ShardSettings(
        number=settings.shard_number,
        commit_wait_seconds=settings.commit_wait_seconds,
        tuning=IndexTuning(
            index_type=settings.faiss_type,
            recall_target=settings.recall_target,
            memory_bytes=settings.faiss_memory_bytes,
        ),
        min_snapshot_change_count=settings.snapshot_change_count,
        max_index_count=settings.max_index_count,
        recall_sample_share=settings.recall_sample_share,
        recall_window_seconds=settings.recall_window_seconds,
        recall_floor=settings.recall_floor,
        gpu_number=gpu_number,
        memory=MemoryLimit(settings.memory_bytes),
        checked_at_load_bytes=settings.checked_at_start_bytes,
        keyword_attributes=settings.keyword_attributes if settings.keywords_enabled else None,
    )
