"""Searches and ingests in one process: the services' own work, without ports or processes."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tandem.client import Client
from tandem.client.arguments import checked_timeout_seconds
from tandem.engine.local import Local
from tandem.engine.open_folder import OpenFolder
from tandem.errors import IndexNotFound

if TYPE_CHECKING:
    from tandem.corpus.records import Record
    from tandem.lab.evaluation.reports.report import Report

# Above a client's default: the first call also waits for the model to load.
_TIMEOUT_SECONDS = 60.0


class Engine(Client):
    """A whole Tandem over one folder, with the calls of `Client`. Close it, or use it in a with.

        with Engine("my-pictures") as engine:
            list(engine.ingest([("cat", Path("cat.jpg").read_bytes())], index_id="pets"))
            print(engine.search("a cat", index_id="pets").items)

    It answers as the services do, from the same stores: `tandem up --data` opens its folder, and
    it opens theirs. Any thread may call it.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        model: str | Path | None = None,
        shards: int | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        caches: bool = True,
    ) -> None:
        """Opens the folder, or makes it.

        `model` is the folder of a checkpoint or a model repository; without it the folder's own is
        used, which at first is the shipped model. A new folder has one shard unless `shards` says
        otherwise. The model is loaded in the background: the first call waits for it.

        Raises StartRefused if another process has the folder, StoreRefused for a store that may not
        be opened, and ValueError for files that are not a model.
        """
        checked_timeout_seconds(timeout_seconds)  # before anything is opened
        self._open_folder = OpenFolder.open(folder, model, shards, caches=caches)
        self.folder = str(self._open_folder.path)
        self._transport = Local(self._open_folder, timeout_seconds)
        self._open_folder.begin_loading()

    def evaluate(
        self,
        records: "Iterable[Record]",
        *,
        language: str | None = None,
        captions: int = 1,
        rerank_k: Sequence[int] = (20,),
        query_count: int | None = None,
        concurrency: int = 2,
    ) -> "Report":
        """Returns R@k in both directions on records, as `tandem evaluate` measures them.

        The records are stored in an index of their own, searched by each other, and removed again.
        `rerank_k` are the depths of the rerank to compare; 0, or a model without a cross-encoder,
        leaves the bi-encoder's order. Raises the error of the first item or search that fails, and
        ValueError for records that make no gallery.
        """
        # Imported here: no search needs it, and it is a tenth of the import of an engine.
        from tandem.engine.gallery_report import gallery_index_id, gallery_of, gallery_report

        gallery = gallery_of(records, language, captions)
        index_id = gallery_index_id()
        try:
            for outcome in self.ingest(gallery.items(), index_id=index_id):
                if outcome.error is not None:
                    raise outcome.error
            return self._open_folder.thread.run(
                gallery_report(
                    self._open_folder,
                    index_id,
                    gallery,
                    rerank_k if self._open_folder.has_pairs else (0,),
                    query_count=query_count,
                    concurrency=concurrency,
                )
            )
        finally:
            with suppress(IndexNotFound):
                while not self.remove_index(index_id=index_id).is_complete:
                    pass

    def __repr__(self) -> str:
        return f"<Engine over {self.folder}>"

    def __reduce__(self) -> NoReturn:
        self._open_folder.refuse_copy()

    def close(self) -> None:
        """Ends what still runs, commits, and gives the folder back; a second call does nothing."""
        self._open_folder.close()
