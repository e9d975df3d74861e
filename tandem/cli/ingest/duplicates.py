"""Leaves out pictures that an index has under another id, or takes them in place of those."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tandem.cli.ingest.job_record import JobRecord, Row, Status
from tandem.cli.ingest.look_alikes import LookAlikes, look_of
from tandem.cli.ingest.source_job import DuplicatePolicy
from tandem.cli.terminal.console import one_line, out
from tandem.cli.terminal.json_answer import event
from tandem.client import Client, ImageContent, ItemPatch
from tandem.contract.filtering.attributes import MAX_TEXTS_COUNT

_ATTRIBUTE: Final = "duplicates"
_OF_KEPT: Final = "status='duplicate' AND why=?"
_SHOWN_COUNT: Final = 3


class Duplicates:
    """The duplicates of one run. What is stored stays, unless another one replaces it."""

    def __init__(
        self, job: JobRecord, client: Client, index_id: str, policy: DuplicatePolicy
    ) -> None:
        self._job, self._client, self._index_id = job, client, index_id
        self._policy = policy
        self._found: list[tuple[str, str, Row | None]] = []
        """The id of an item to keep, and that of its duplicate, whose row comes if it is new."""
        self._known = LookAlikes()
        for item_id, digest, look in job.looks():
            self._known.add(
                item_id, digest, self._looked(item_id, digest) if look is None else look
            )

    def takes(self, row: Row, content: object) -> bool:
        """Returns whether this item of a source is a duplicate, and not to be stored."""
        if not isinstance(content, bytes) or not content:
            return False
        look = look_of(content)
        self._job.keep_look(row.digest, look)
        before = self._job.row(row.item_id)
        if before is not None and before.status is not Status.DUPLICATE:
            self._known.add(row.item_id, row.digest, look)
            return False
        twin_id = self._known.twin(row.item_id, row.digest, look)
        is_same = before is not None and before.why == twin_id
        if twin_id is not None and (is_same or self._policy is not DuplicatePolicy.REPLACE):
            self._found.append((twin_id, row.item_id, row))
            return True
        self._known.add(row.item_id, row.digest, look)
        if twin_id is not None:
            self._found.append((row.item_id, twin_id, None))
            self._known.replace(twin_id, row.item_id)
        return False

    def settle(self) -> None:
        """Notes the duplicates, once the items that have their pictures are stored."""
        pairs: list[tuple[str, str]] = []
        for kept_id, left_id, row in self._found:
            kept, before = self._job.row(kept_id), self._job.row(left_id)
            if kept is None or kept.status is not Status.STORED:
                continue  # The next run asks again.
            items = self._job.rows(left_id)
            if row is None or len(items) > 1:  # Its captions go with it.
                self._client.remove(list(items), index_id=self._index_id)
                self._job.forget(items)
            left = [row or items[left_id], *self._job.every(_OF_KEPT, left_id)]
            left = [
                replace(each, status=Status.DUPLICATE, why=kept_id, attributes=kept.digest.hex())
                for each in left
            ]
            is_known = before is not None and before.why == kept_id and before.state
            if self._policy is DuplicatePolicy.LINK and not is_known:
                # Read again by the next run, unless the other item gets its name.
                self._job.write(replace(each, state="") for each in left)
                self.link([kept_id])
            self._job.write(left)
            pairs += [] if is_known else [(left_id, kept_id)]
        if pairs:
            names = ", ".join(f"{left} is {kept}" for left, kept in pairs[:_SHOWN_COUNT])
            more = ", …" * (len(pairs) > _SHOWN_COUNT)
            out.print(one_line(f"{len(pairs):,} duplicates ({self._policy}): {names}{more}"))
            event("duplicates", {"policy": self._policy, "pairs": pairs})

    def link(self, item_ids: Iterable[str]) -> None:
        """Has each item name its duplicates, at most 64, in an attribute."""
        for item_id in item_ids:
            names = sorted(row.item_id for row in self._job.every(_OF_KEPT, item_id))
            patch = ItemPatch(item_id, {_ATTRIBUTE: names[:MAX_TEXTS_COUNT] or None})
            self._client.change([patch], index_id=self._index_id)

    def _looked(self, item_id: str, digest: bytes) -> bytes:
        """Returns the look of a picture that was stored without one."""
        found = self._client.fetch_items([item_id], index_id=self._index_id)
        content = found[0].content if found else None
        look = look_of(content.image_bytes) if isinstance(content, ImageContent) else b""
        self._job.keep_look(digest, look)
        return look
