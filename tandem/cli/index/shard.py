"""`tandem shard`: verifies, backs up, restores and enlarges one shard's store."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, plain, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.local.item_store.backup import back_up, backups_in, verify_backup
from tandem.local.item_store.backup import restore as restore_backup
from tandem.local.item_store.backup_manifest import BackupManifest
from tandem.local.item_store.check import Show
from tandem.local.item_store.environment import DEFAULT_MAP_BYTES, raise_limit
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.verdict import Verdict, verify_in_child
from tandem.platform.files.object_store import object_folder
from tandem.platform.files.private_files import private_files

_SHOWN_FAULT_COUNT = 20

STORE = Annotated[Path, typer.Argument(help="folder of the shard's store", metavar="PATH")]
PLACE = Annotated[
    str,
    typer.Argument(
        help="folder for backups, or the URL of one in an object store: s3://, gs:// or az://"
    ),
]


@with_json
def backup(path: STORE, place: PLACE) -> None:
    """Copy a store while it is served, as of one transaction.

    Only what changed since its newest backup there is copied.
    """
    with _refusals(), _progress(f"copy {path}") as show:
        url, manifest = back_up(object_folder(_url(place), is_new=True), path, show=show)
    answer({"url": url, "manifest": manifest})
    _tell_state(manifest)
    out.print(url)


@with_json
def backups(place: PLACE) -> None:
    """List the backups in a folder, of each store the oldest first."""
    with _refusals():
        urls = backups_in(object_folder(_url(place)))
    answer({"backups": urls})
    for url in urls:
        out.print(url)


@with_json
def verify(
    path: Annotated[
        str, typer.Argument(help="folder of a shard's store, or a backup's URL or path")
    ],
) -> None:
    """Check a store, or a backup, which is put together in a temporary folder.

    Checks every value, the change log, and, for a backup or an unused store, every page.
    """
    with _refusals(), _progress(f"check {path}") as show:
        verdict = (
            verify_backup(url, show)
            if (url := _url(path)).endswith(".json")
            else verify_in_child(Path(path), show=show)
        )
    answer({"is_sound": verdict.is_sound} | plain(verdict) | {"path": path})
    _tell_verdict(verdict, path)
    if not verdict.is_sound:
        raise typer.Exit(1)


@with_json
def restore(
    backup: Annotated[str, typer.Argument(help="what tandem shard backup printed")],
    path: Annotated[Path, typer.Argument(help="empty folder for the new store")],
) -> None:
    """Restore a shard's store from a backup, after checking it."""
    with _refusals(), _progress(f"check {backup}") as show:
        manifest = restore_backup(_url(backup), path, show)
    answer({"path": path, "manifest": manifest})
    _tell_state(manifest)
    out.print(f"{path} is {manifest.identity}: start index_svc on it")


@with_json
def grow(
    path: STORE,
    gibibytes: Annotated[int, typer.Argument(min=1, help="maximum size of the store")],
) -> None:
    """Raise the size limit of a store, also while served.

    It never shrinks.
    """
    with _refusals():
        limit = raise_limit(path, gibibytes << 30)
    answer({"path": path, "limit_bytes": limit})
    line = f"{path} may grow to {limit / (1 << 30):,.10g} GiB"
    if limit > gibibytes << 30:
        line += ", as it might already: a limit is never lowered"
    out.print(line)
    if limit < DEFAULT_MAP_BYTES:
        out.print(
            "an index_svc whose INDEX_STORE_MAP_BYTES is more takes that; unset, it is "
            f"{DEFAULT_MAP_BYTES >> 30:,} GiB"
        )


def _url(text: str) -> str:
    return text if "://" in text else Path(text).absolute().as_uri()


def _tell_state(manifest: BackupManifest) -> None:
    items = ", ".join(
        f"{count:,} in {name}" for name, count in sorted(manifest.item_counts.items())
    )
    out.print(
        f"{manifest.identity} at change {manifest.sequence:,}: items {items or 'none'}; "
        f"{manifest.data_bytes:,} bytes, {manifest.changed_bytes:,} of them changes"
    )


def _tell_verdict(verdict: Verdict, path: str) -> None:
    if verdict.is_sound:
        out.print(f"{path} is sound: {verdict.item_count:,} items at change {verdict.sequence:,}")
        if verdict.has_writer:
            out.print("a process is writing to it, so LMDB's list of free pages was not checked")
        if count := verdict.unnamed_content_count:
            out.print(f"{count:,} contents belong to no item and take room: ingest them again")
        return
    faults = (*verdict.damage, *verdict.corrupt_items)[:_SHOWN_FAULT_COUNT]
    for fault in faults:
        errors.print(fault)
    if (more := len(verdict.damage) + verdict.corrupt_item_count - len(faults)) > 0:
        errors.print(f"and {more:,} more")
    what = (
        "restore it from a backup"
        if verdict.damage
        else f"{verdict.corrupt_item_count:,} items: ingest them again, or restore a backup"
    )
    errors.print(f"{path} is damaged; {what}")


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns a refusal into one line and exit status 1; new files are private."""
    try:
        with private_files():
            yield
    except (StoreRefused, OSError) as error:
        errors.print(str(error))
        raise typer.Exit(1) from None


@contextmanager
def _progress(what: str) -> Iterator[Show]:
    """Yields a function that shows the progress."""
    with LongWork(often_short=True) as work:
        yield partial(work.show, what)
