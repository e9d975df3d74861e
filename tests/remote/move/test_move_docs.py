"""docs/scaling.md: its commands of `tandem move`, between real index services."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.remote.move.move_files import MovedShards, read_move_file
from tests.support.item_store.made_items import text_item
from tests.support.move.moving_shards import shards

PAGE = (Path(__file__).parents[3] / "docs/scaling.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(block.replace("\\\n", " "))
    for block in re.findall(r"^ *```sh\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE)
    if "tandem move" in block
]


async def test_the_commands_of_the_page_move_and_let_the_sources_take_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        shards(tmp_path / "from", 2) as sources,
        shards(tmp_path / "to", 3, {"SHARD_MAP_VERSION": 2}) as targets,
    ):
        await sources.store([text_item("a"), text_item("b")])
        real = {f"127.0.0.1:{7420 + n}": address for n, address in enumerate(sources.addresses)}
        real |= {f"127.0.0.1:{7620 + n}": address for n, address in enumerate(targets.addresses)}
        move, lift = ([real.get(word, word) for word in words[1:]] for words in COMMANDS)

        moved = await asyncio.to_thread(CliRunner().invoke, app, move)
        shard_map = read_move_file(tmp_path / "shard-map.json", MovedShards)
        refused = await asyncio.to_thread(CliRunner().invoke, app, lift)
        (tmp_path / "shard-map.json").unlink()
        lifted = await asyncio.to_thread(CliRunner().invoke, app, lift)

        assert (moved.exit_code, lifted.exit_code) == (0, 0), (moved.output, lifted.output)
        assert "all items of 2 shards are on 3" in moved.output
        # Orchestrators may be there: writes to the old shards would be lost without an error.
        assert "sends orchestrators to other shards" in f"{refused.exception}"
        assert "2 shards take writes again" in lifted.output
        assert shard_map is not None
        assert list(shard_map.index_addresses) == targets.addresses
        assert (await targets.contents())["scenes"].keys() == {"a", "b"}
        await sources.store([text_item("c")])
        # Given up for a while only: what came since is moved too.
        again = await asyncio.to_thread(CliRunner().invoke, app, move)
        assert again.exit_code == 0, again.output
        assert (await targets.contents())["scenes"].keys() == {"a", "b", "c"}
