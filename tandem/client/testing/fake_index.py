"""Keeps the items of the fake in dictionaries, and ranks them."""

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import NamedTuple

from tandem.client.testing.fake_words import (
    MODEL,
    Words,
    content_words,
    item_words,
    keyword_words,
    match_logit,
    probability,
    similarity,
    words_of,
)
from tandem.contract.content import Content, Modality, TextContent
from tandem.contract.filtering.filters import holds
from tandem.contract.fusion import HybridRank
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_RETRIEVE_K, check_k
from tandem.contract.search.answer import (
    NO_SECONDS,
    Abstention,
    Coverage,
    FoundItem,
    IngestOutcome,
    NeighbourSummary,
    Removal,
    RerankSummary,
    SearchResult,
    ordering_stage,
)
from tandem.contract.search.answer_names import (
    DegradationKind,
    NeighbourStopReason,
    RerankStopReason,
)
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.item_changes import (
    Changes,
    ItemFailure,
    ItemPatch,
    ItemsChange,
    ItemSelection,
    ItemsRemoval,
)
from tandem.contract.search.query import (
    GivenEncoding,
    HybridRule,
    PageQuery,
    SearchQuery,
    StoredItem,
    WeightedPart,
)
from tandem.contract.search.score_calibration import BI_ENCODER, MAX_NULL_SCORE_COUNT
from tandem.contract.search_path import (
    KeywordState,
    SearchPath,
    SearchStrategy,
    ShardRetrieval,
)
from tandem.errors import (
    ConsistencyTokenInvalid,
    CursorInvalid,
    IndexNotFound,
    ItemIdDuplicate,
    ItemNotFound,
    NeighbourModelMissing,
    QueryInvalid,
    TandemError,
    TextEmpty,
)

_TOKEN = "fake-"
_RANK_CONSTANT = 60


class StoredWords(NamedTuple):
    """An item that is stored, and the words that stand for it."""

    item: IncomingItem
    content: Content
    words: Words


class _Part(NamedTuple):
    modality: Modality
    words: Words
    weight: float


class FakeIndex:
    """All indexes of one fake; for calls from any thread."""

    def __init__(self) -> None:
        self._indexes: dict[str, dict[str, StoredWords]] = {}
        self._cursors: dict[bytes, tuple[SearchResult, str, int]] = {}
        self._write_count = 0
        self._lock = threading.RLock()

    def store(self, index_id: str, items: Sequence[IncomingItem]) -> list[IngestOutcome]:
        """Stores what can be stored, and returns each item's outcome."""
        check_index_id(index_id)
        with self._lock:
            errors = [self._stored(index_id, item) for item in items]
            last = {each.item_id: n for n, each in enumerate(items) if errors[n] is None}
            for number, item in enumerate(items):
                if errors[number] is None and last[item.item_id] != number:
                    errors[number] = ItemIdDuplicate(item_id=item.item_id)
            token = self._new_token()
        pairs = zip(items, errors, strict=True)
        return [IngestOutcome(item.item_id, error, token) for item, error in pairs]

    def selected(self, index_id: str, selection: ItemSelection | None) -> list[str]:
        """Returns the ids of the selection, or all, in byte order; raises IndexNotFound."""
        where = selection.filter if selection else None
        return [
            item_id
            for item_id, each in sorted(self.items(index_id).items(), key=lambda e: e[0].encode())
            if (selection is None or selection.has_id(item_id))
            and (where is None or holds(where.tree, each.item.attributes))
        ]

    def change(self, asked: ItemsChange) -> Changes:
        """Changes the items that exist."""
        with self._lock:
            patches = list(asked.patches)
            ids = self.selected(asked.index_id, asked.selection)
            if asked.selection and isinstance(patch := patches[0], ItemPatch):
                patches = [replace(patch, item_id=item_id) for item_id in ids]
            outcomes = [None if asked.dry_run else self._changed(asked, each) for each in patches]
            failures = [each for each in outcomes if each is not None]
            shown = ids[:20] if asked.selection else ()
            return Changes(len(patches) - len(failures), self._new_token(), failures, shown)

    def _changed(self, asked: ItemsChange, patch: ItemPatch | ItemFailure) -> ItemFailure | None:
        if isinstance(patch, ItemFailure):
            return patch
        items, source_id = self._indexes[asked.index_id], patch.copied_from_item_id or patch.item_id
        if source_id not in items:
            return ItemFailure(patch.item_id, ItemNotFound(item_id=source_id))
        old, content, _ = items[source_id]
        kept = replace(old, item_id=patch.item_id, attributes=patch.patched(old.attributes))
        items[patch.item_id] = StoredWords(kept, content, item_words(kept, content))
        return None

    def remove(self, asked: ItemsRemoval) -> Removal:
        """Removes the items that exist."""
        with self._lock:
            items = self._indexes.get(check_index_id(asked.index_id), {})
            if asked.selection is None:
                count = sum(items.pop(item_id, None) is not None for item_id in asked.item_ids)
                return Removal(count, self._new_token())
            ids = self.selected(asked.index_id, asked.selection)
            for item_id in () if asked.dry_run else ids:
                del items[item_id]
            return Removal(len(ids), self._new_token(), item_ids=ids[:20])

    def remove_index(self, index_id: str) -> Removal:
        """Removes an index; raises IndexNotFound."""
        with self._lock:
            count = len(self.items(index_id))
            del self._indexes[index_id]
            return Removal(count, self._new_token())

    def items(self, index_id: str) -> dict[str, StoredWords]:
        """Returns the items by id; raises IndexNotFound."""
        with self._lock:
            if check_index_id(index_id) not in self._indexes:
                raise IndexNotFound(index_id=index_id)
            return dict(self._indexes[index_id])

    def index_ids(self) -> list[str]:
        """Returns the ids of the indexes, sorted."""
        with self._lock:
            return sorted(self._indexes)

    def item_count(self, index_id: str, *modalities: Modality) -> int:
        """Returns how many items of these modalities there are."""
        return sum(each.content.modality in modalities for each in self.items(index_id).values())

    def search(self, query: SearchQuery) -> SearchResult:
        """Returns the first page of the answer."""
        for token in query.consistency_tokens:
            if not token.startswith(_TOKEN):
                raise ConsistencyTokenInvalid(why="it is not of this fake")
        if query.neighbours_required:
            raise NeighbourModelMissing
        items = self.items(query.index_id)
        parts = [_part(part, items) for part in query.parts]
        lists = [_ranked(query, parts, items, modality) for modality in query.modalities]
        merged = [each for each in chain.from_iterable(zip_longest(*lists)) if each is not None]
        if (least := query.ranking.min_probability) is not None:
            merged = [each for each in merged if (each.match_probability or -1.0) >= least]
        abstention = None
        if (rate := query.ranking.max_false_answer_rate) is not None:
            was_empty, is_scored = not merged, any(each.match_logit is not None for each in merged)
            # What has a word of the query is no stranger here.
            merged = [each for each in merged if each.similarity > 0.0]
            scorer = MODEL.fingerprint if is_scored else BI_ENCODER
            threshold = match_logit(frozenset(), frozenset()) if is_scored else 0.0
            is_none = not (merged or was_empty)
            abstention = Abstention(is_none, rate, scorer, threshold, MAX_NULL_SCORE_COUNT)
        count = self.item_count(query.index_id, *query.modalities)
        degradations = [DegradationKind.NEIGHBOURS_SKIPPED] if query.neighbours_enabled else []
        searched = KeywordState.SEARCHED if query.hybrid else None
        path = SearchPath(SearchStrategy.EXACT_SCAN)
        whole = SearchResult(
            tuple(replace(each, final_rank=rank) for rank, each in enumerate(merged, start=1)),
            MODEL.fingerprint,
            NO_SECONDS,
            Coverage(1, 1, count, count, {}),
            _rerank(query, parts, sum(each.match_logit is not None for each in chain(*lists))),
            tuple(degradations),
            model_version=1,
            retrievals=tuple(
                ShardRetrieval(0, each, path, self.item_count(query.index_id, each), searched)
                for each in query.modalities
            ),
            neighbours=NeighbourSummary(0, NeighbourStopReason.NOT_SERVED, "", {})
            if query.neighbours_enabled
            else None,
            abstention=abstention,
        )
        return self._page(whole, query, query.depth.return_n)

    def page(self, query: PageQuery) -> SearchResult:
        """Returns the next page of an earlier answer."""
        rest, index_id, count = self._cursors.get(query.cursor, (None, "", 0))
        if rest is None or index_id != query.index_id:
            raise CursorInvalid(why="it is not of this fake")
        if query.return_n is not None:
            check_k("return_n", query.return_n, MAX_RETRIEVE_K)
        return self._page(rest, query, query.return_n or count)

    def _page(
        self, whole: SearchResult, query: SearchQuery | PageQuery, count: int
    ) -> SearchResult:
        stored = self._indexes.get(query.index_id, {})
        shown = []
        for found in whole.items[:count]:
            if (kept := stored.get(found.item_id)) and query.content_included:
                found = replace(found, content=kept.content)
            if kept and (query.content_included or query.attributes_included):
                found = replace(found, attributes=kept.item.attributes)
            shown.append(found)
        cursor = b""
        if rest := whole.items[count:]:
            with self._lock:
                cursor = f"fake-cursor-{len(self._cursors)}".encode()
                later = replace(whole, items=rest, abstention=None)
                self._cursors[cursor] = (later, query.index_id, count)
        return replace(whole, items=tuple(shown), next_cursor=cursor)

    def _stored(self, index_id: str, item: IncomingItem) -> TandemError | None:
        try:
            check_item_id(item.item_id)
            content = checked_content(item.content)
        except TandemError as error:
            return error
        kept = StoredWords(item, content, item_words(item, content))
        self._indexes.setdefault(index_id, {})[item.item_id] = kept
        return None

    def _new_token(self) -> str:
        self._write_count += 1
        return f"{_TOKEN}{self._write_count}"


def checked_content(content: Content | TandemError) -> Content:
    """Returns the content; raises its error, and TextEmpty."""
    if isinstance(content, TandemError):
        raise content
    if isinstance(content, TextContent) and not content.text.strip():
        raise TextEmpty
    return content


def _part(part: WeightedPart, items: dict[str, StoredWords]) -> _Part:
    match part.source:
        case GivenEncoding():
            raise QueryInvalid(why="the fake of tandem.client.testing has no model for encodings")
        case StoredItem(item_id):
            if item_id not in items:
                raise ItemNotFound(item_id=item_id)
            found = items[item_id]
            return _Part(found.content.modality, found.words, part.weight)
        case content:
            return _Part(content.modality, content_words(checked_content(content)), part.weight)


def _ranked(
    query: SearchQuery,
    parts: Sequence[_Part],
    items: dict[str, StoredWords],
    modality: Modality,
) -> list[FoundItem]:
    """Returns the first by similarity, the scored ones first."""
    wanted = None if query.filter is None else query.filter.tree
    found = {
        item_id: each
        for item_id, each in items.items()
        if each.content.modality is modality
        and (wanted is None or holds(wanted, each.item.attributes))
    }
    total = sum(abs(part.weight) for part in parts) or 1.0
    near = {
        item_id: sum(part.weight * similarity(part.words, each.words) for part in parts) / total
        for item_id, each in found.items()
    }
    depth = query.depth
    first = sorted(near, key=lambda each: (-near[each], each))[: depth.retrieve_k]
    hybrid = _hybrid_ranks(query.hybrid, first, found, depth.retrieve_k) if query.hybrid else {}
    read = [part for part in parts if part.modality is not modality]
    rerank_k = depth.rerank_k if read and not query.rerank_disabled else 0
    ranked = []
    for rank, item_id in enumerate(hybrid or first, start=1):
        logit = None
        if rank <= rerank_k:
            words = max(read, key=lambda part: part.weight).words
            logit = match_logit(words, found[item_id].words)
        of_both = hybrid.get(item_id)
        by_near = near[item_id] if of_both is None else of_both.fused_score
        ranked.append(
            FoundItem(
                item_id,
                near[item_id],
                logit,
                None if logit is None else probability(logit),
                rank,
                rank,
                None,
                modality=modality,
                score=by_near if logit is None else logit,
                hybrid=of_both,
                ordered_by=ordering_stage(logit, None),
            )
        )
    # A stable sort: ties and unscored items keep their order.
    ranked.sort(key=lambda each: math.inf if each.match_logit is None else -each.match_logit)
    return ranked


def _hybrid_ranks(
    rule: HybridRule, near_ids: Sequence[str], items: dict[str, StoredWords], count: int
) -> dict[str, HybridRank]:
    """Returns the best of both lists, fused by reciprocal rank whatever fusion is requested."""
    words = words_of(rule.keywords)
    scores = {
        item_id: len(words & keyword_words(each.item, each.content))
        for item_id, each in items.items()
    }
    worded = sorted(filter(scores.get, scores), key=lambda each: (-scores[each], each))[:count]
    near = {item_id: rank for rank, item_id in enumerate(near_ids, start=1)}
    by_words = {item_id: rank for rank, item_id in enumerate(worded, start=1)}
    weights = ((near, 1.0 - rule.keyword_weight), (by_words, rule.keyword_weight))
    ranks = {
        item_id: HybridRank(
            near.get(item_id),
            by_words.get(item_id),
            scores[item_id] if item_id in by_words else None,
            sum(each / (_RANK_CONSTANT + of[item_id]) for of, each in weights if item_id in of),
        )
        for item_id in (*near, *by_words)
    }
    ordered = sorted(ranks, key=lambda each: (-ranks[each].fused_score, each))
    return {each: ranks[each] for each in ordered[:count]}


def _rerank(query: SearchQuery, parts: Sequence[_Part], scored_count: int) -> RerankSummary:
    is_read = any(part.modality is not each for part in parts for each in query.modalities)
    stop = RerankStopReason.COMPLETE if is_read else RerankStopReason.NOT_APPLICABLE
    return RerankSummary(
        scored_count,
        RerankStopReason.DISABLED if query.rerank_disabled else stop,
        reranker=MODEL.fingerprint if scored_count else "",
    )
