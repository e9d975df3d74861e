"""Backs up the shard that this process serves, below the operator's place in an object store."""

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tandem.errors import RequestMalformed, ServiceUnavailable
from tandem.local.shard.metrics import BACKUP_TIME
from tandem.platform.child_processes.child_environment import python_command, python_environment
from tandem.v1 import index_admin_service_pb2 as pb

_MODULE = "tandem.local.item_store.backup"
_FOLDER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class ShardBackups:
    """Makes backups of one store in child processes."""

    def __init__(self, store: Path, place: str, shard_number: int) -> None:
        """Takes the store's folder and the place's URL; an empty one refuses every backup."""
        self._store = store
        self._shard_number = shard_number
        self._place = place.rstrip("/")
        self._turns = asyncio.Lock()

    async def back_up(self, folder: str) -> AsyncGenerator[pb.BackUpShardResponse, None]:
        """Yields the progress and at last the backup; raises RequestMalformed, ServiceUnavailable.

        One at a time. A caller who leaves ends the backup, of which nothing is visible then.
        """
        if not self._place:
            raise RequestMalformed(
                why="this shard has no place for backups", remedy="set INDEX_BACKUP_URL"
            )
        if _FOLDER.fullmatch(folder) is None:
            raise RequestMalformed(
                why="folder is not a name",
                remedy='use 1 to 63 of "a" to "z", digits, "-" and "_", first a letter or digit',
            )
        async with self._turns:
            child = await asyncio.create_subprocess_exec(
                *python_command(["-m", _MODULE, str(self._store), f"{self._place}/{folder}"]),
                stdout=PIPE,
                env=python_environment(),
            )
            assert child.stdout is not None
            try:
                async for line in child.stdout:
                    yield self._response(json.loads(line))
                if status := await child.wait():
                    raise ServiceUnavailable(service="backup", why=f"it ended with status {status}")
            finally:
                if child.returncode is None:
                    child.kill()
                    await child.wait()

    def _response(self, line: dict[str, Any]) -> pb.BackUpShardResponse:
        if "refusal" in line:
            raise ServiceUnavailable(service="backup", why=line["refusal"])
        if "backup" in line:
            BACKUP_TIME.labels(self._shard_number).set_to_current_time()
            url = line["backup"].pop("url")
            backup = pb.ShardBackup(name=url.removeprefix(f"{self._place}/"), **line["backup"])
            return pb.BackUpShardResponse(backup=backup)
        return pb.BackUpShardResponse(**line)
