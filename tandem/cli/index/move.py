"""`tandem move`: moves all items to other shards while they are searched."""

import asyncio
import fcntl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from tandem.cli.options import checked
from tandem.cli.terminal.console import out
from tandem.cli.terminal.progress import LongWork
from tandem.client.access import Access
from tandem.remote.move.move_files import (
    MovedShards,
    MoveProgress,
    read_move_file,
    write_move_file,
)
from tandem.remote.move.mover import Mover, MoveRefused
from tandem.remote.move.shard_link import ShardLink


def _addresses(option: str, what: str) -> Any:  # noqa: ANN401 (as Typer declares it)
    said = f"host:port of {what}; repeat in the shards' order"
    return typer.Option(option, help=said, callback=checked)


def move(
    sources: Annotated[list[str], _addresses("--from", "an index_svc whose items move")],
    targets: Annotated[list[str], _addresses("--to", "an empty index_svc that takes them")] = [],  # noqa: B006 (Typer copies it)
    rerankers: Annotated[
        list[str], _addresses("--rerank-address", "the rerank_svc of a target")
    ] = [],  # noqa: B006
    next_rerankers: Annotated[
        list[str], _addresses("--next-rerank-address", "its rerank_svc of the next model, if any")
    ] = [],  # noqa: B006
    shard_map_file: Annotated[
        Path, "the orchestrators' ORCHESTRATOR_SHARD_MAP_FILE, to write"
    ] = Path("shard-map.json"),
    progress_file: Annotated[
        Path, "keeps how far the move is, so that a killed one continues"
    ] = Path("tandem-move.json"),
    lift: Annotated[
        bool, typer.Option(help="only let the sources take writes again, after a move given up")
    ] = False,
) -> None:
    """Move all items to other shards, and let orchestrators follow.

    Copies them with their encodings, follows the change log until nothing is behind, and has the
    sources refuse writes then. Calls the shards as an orchestrator does, and needs the right admin.
    """
    if not lift and not 0 < len(targets) == len(rerankers):
        raise typer.BadParameter("give as many --rerank-address as --to, and at least one")
    if next_rerankers and len(next_rerankers) != len(targets):
        raise typer.BadParameter("give as many --next-rerank-address as --to, or none")
    current = read_move_file(shard_map_file, MovedShards) if lift else None
    if current and set(current.index_addresses) != set(sources):
        raise MoveRefused(
            f"{shard_map_file} sends orchestrators to other shards, and what the old ones stored "
            "would be lost: remove it, or have it name these shards"
        )
    versions = asyncio.run(_moved(sources, [] if lift else targets, progress_file))
    if lift:
        out.print(f"{len(sources)} shards take writes again")
        return
    shard_map = MovedShards(
        version=versions[1],
        index_addresses=tuple(targets),
        rerank_addresses=tuple(rerankers),
        moved_from_version=versions[0],
        moved_from_count=len(sources),
        next_rerank_addresses=tuple(next_rerankers),
    )
    write_move_file(shard_map_file, shard_map)
    out.print(
        f"all items of {len(sources)} shards are on {len(targets)}; orchestrators that follow "
        f"{shard_map_file} search and write there"
    )


async def _moved(
    sources: Sequence[str], targets: Sequence[str], progress_file: Path
) -> tuple[int, int]:
    """Returns the versions of both shard maps; without targets, lifts the fences."""
    access = Access.from_environment()
    async with AsyncExitStack() as opened:

        def links(addresses: Sequence[str]) -> list[ShardLink]:
            made = [ShardLink(each, number, access) for number, each in enumerate(addresses)]
            for link in made:
                opened.push_async_callback(link.channel.close)
            return made

        if not targets:
            if progress := read_move_file(progress_file, MoveProgress):
                progress.is_sealed = False  # The same command would bring what they take now.
                write_move_file(progress_file, progress, mode=0o600)
            for link in links(sources):
                await link.fence(0)
            return 0, 0
        lock = opened.enter_context(progress_file.with_suffix(".lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MoveRefused(f"another tandem move works with {progress_file}") from None
        with LongWork() as work:
            return await Mover(links(sources), links(targets), progress_file, work.show).move()
