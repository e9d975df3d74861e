"""Reads what a shard holds after a fault: from its store, by GetItems and by search."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import grpc

from tandem.contract.content import Modality
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.search.answer_wire import content_from_proto
from tandem.errors import ItemCorrupt
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.items import ItemRecord
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_to_proto
from tests.support.faults.history import Finding, FindingKind, Version
from tests.support.faults.versioned_item import content_version, is_whole, modality_of
from tests.support.index_svc.encoded_items import INDEX_ID
from tests.support.item_store.made_items import DIMENSION, FINGERPRINT, unit_vector

TIMEOUT_SECONDS = 30
# The most that one search may ask for, and the most queries or ids in a request.
MAX_HIT_COUNT = 1000
_BATCH_COUNT = 64


@dataclass(frozen=True, slots=True)
class Observation:
    """Holds the versions in the store, the position of its change log, and contradictions."""

    versions: Mapping[str, Version]
    sequence: int
    findings: Sequence[Finding]


async def observe(path: Path, stub: IndexServiceStub) -> Observation:
    """Reads all that the shard holds, at most 1,000 items of each modality, while it serves."""
    stored, sequence = _stored_items(path)
    versions, findings = _judged(stored)
    if sequence:
        findings += [*await _unlike_reads(stub, versions), *await _unlike_searches(stub, versions)]
    return Observation(versions, sequence, findings)


async def observe_served(stub: IndexServiceStub, item_ids: Sequence[str]) -> Observation:
    """Reads the items of these ids through the service, without its files.

    Opening a damaged store could kill the test's own process. An item that the service reports as
    damaged counts as malformed; any other refusal raises.
    """
    versions: dict[str, Version] = {}
    findings: list[Finding] = []
    if not item_ids:  # nothing was ever written, so there is no index to search
        return Observation(versions, 0, findings)
    for batch in _batches(item_ids):
        try:
            versions |= await _read(stub, batch)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.DATA_LOSS:
                raise
            for item_id in batch:
                try:
                    versions |= await _read(stub, [item_id])
                except grpc.aio.AioRpcError as one_error:
                    if one_error.code() is not grpc.StatusCode.DATA_LOSS:
                        raise
                    findings.append(
                        Finding(FindingKind.MALFORMED, item_id, one_error.details() or "")
                    )
    findings += await _unlike_searches(stub, versions)
    return Observation(versions, 0, findings)


def _stored_items(path: Path) -> tuple[list[ItemRecord | ItemCorrupt], int]:
    """Reads the store while the service runs, as rerank_svc does."""
    store = ItemStore.open(path, 0, 1, readonly=True)
    try:
        if not store.index_ids():  # no write was committed yet
            return [], 0
        return list(_each_item(store)), store.sequence()
    finally:
        store.close()


def _each_item(store: ItemStore) -> Iterator[ItemRecord | ItemCorrupt]:
    for entry in store.scan_embeddings(INDEX_ID):
        if isinstance(entry, ItemCorrupt):
            yield entry
        else:
            (item,) = store.read_items(INDEX_ID, [entry.item_id])
            assert item is not None
            yield item


def _judged(items: Sequence[ItemRecord | ItemCorrupt]) -> tuple[dict[str, Version], list[Finding]]:
    versions: dict[str, Version] = {}
    findings: list[Finding] = []
    for item in items:
        if isinstance(item, ItemCorrupt):
            findings.append(
                Finding(FindingKind.MALFORMED, item.metadata.get("item_id", ""), str(item))
            )
            continue
        if item.item_id in versions:
            findings.append(Finding(FindingKind.DUPLICATE, item.item_id, "twice in the store"))
        if not is_whole(item):
            findings.append(
                Finding(FindingKind.MALFORMED, item.item_id, "parts of different versions")
            )
        versions[item.item_id] = content_version(item.item_id, item.content)
    return versions, findings


async def _unlike_reads(stub: IndexServiceStub, versions: Mapping[str, Version]) -> list[Finding]:
    findings = []
    for item_ids in _batches(sorted(versions)):
        found = await _read(stub, item_ids)
        findings += [
            Finding(FindingKind.MALFORMED, item_id, f"GetItems tells version {found.get(item_id)}")
            for item_id in item_ids
            if found.get(item_id) != versions[item_id]
        ]
    return findings


async def _read(stub: IndexServiceStub, item_ids: Sequence[str]) -> dict[str, Version]:
    request = pb.GetItemsRequest(index_id=INDEX_ID, item_ids=item_ids)
    response = await stub.GetItems(request, timeout=TIMEOUT_SECONDS)
    return {
        item.item_id: content_version(item.item_id, content_from_proto(item.content))
        for item in response.items
    }


async def _unlike_searches(
    stub: IndexServiceStub, versions: Mapping[str, Version]
) -> list[Finding]:
    findings: list[Finding] = []
    for modality in Modality:
        live = {
            item_id: version
            for item_id, version in versions.items()
            if version is not None and modality_of(version) is modality
        }
        everything, item_count = await _hits(stub, modality, [0], MAX_HIT_COUNT)
        counts = Counter(hit.item_id for hit in everything[0])
        findings += [
            Finding(FindingKind.DUPLICATE, item_id, f"{count} times in one search")
            for item_id, count in counts.items()
            if count > 1
        ]
        findings += [
            Finding(FindingKind.PHANTOM, item_id, "found by a search, not in the store")
            for item_id in counts.keys() - live.keys()
        ]
        findings += [
            Finding(FindingKind.MISSING, item_id, "in the store, not among all found")
            for item_id in live.keys() - counts.keys()
        ]
        if item_count not in (0, len(live)):  # 0 also where the service does not tell it
            why = f"{item_count} {modality.value}s searched, {len(live)} stored"
            findings.append(Finding(FindingKind.DUPLICATE, "", why))
        findings += await _not_found_by_themselves(stub, modality, live)
    return findings


async def _not_found_by_themselves(
    stub: IndexServiceStub, modality: Modality, live: Mapping[str, int]
) -> list[Finding]:
    findings = []
    for item_ids in _batches(sorted(live)):
        nearest, _ = await _hits(stub, modality, [live[item_id] for item_id in item_ids], 1)
        findings += [
            Finding(FindingKind.MISSING, item_id, f"its own embedding finds {list(hits)}")
            for item_id, hits in zip(item_ids, nearest, strict=True)
            if [hit.item_id for hit in hits] != [item_id] or hits[0].similarity < 1 - 1e-4
        ]
    return findings


async def _hits(
    stub: IndexServiceStub, modality: Modality, versions: Sequence[int], k: int
) -> tuple[list[Sequence[pb.Hit]], int]:
    request = pb.SearchEmbeddingsRequest(
        index_id=INDEX_ID,
        model_fingerprint=FINGERPRINT,
        modality=MODALITY_WIRE.to_proto(modality),
        retrieve_k=k,
        queries=[embedding_to_proto(unit_vector(version, DIMENSION)) for version in versions],
    )
    response = await stub.SearchEmbeddings(request, timeout=TIMEOUT_SECONDS)
    return [hit_list.hits for hit_list in response.hit_lists], response.item_count


def _batches(item_ids: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(item_ids)
    while batch := list(islice(remaining, _BATCH_COUNT)):
        yield batch
