"""`tandem attach`: checks that the served model made the vectors of another program."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tandem.chassis.settings import SettingsError
from tandem.cli.options import checked
from tandem.cli.terminal.console import out
from tandem.client.access import Access
from tandem.contract.deadline import Deadline
from tandem.remote.attached.attachment import Attachments, Checked
from tandem.remote.attached.model_check import check_model
from tandem.remote.chosen_engine import engine_shard
from tandem.remote.encoder import RemoteEncoder
from tandem.remote.index_engine import EngineSettings


def attach(
    file: Annotated[Path, typer.Argument(help="where ids, vectors and keys of pictures are")],
    engine: Annotated[str, typer.Option(envvar="INDEX_ENGINE", help="pgvector or milvus")],
    engine_url: Annotated[str, typer.Option(envvar="INDEX_ENGINE_URL", help="how to reach it")],
    encoder_address: Annotated[
        str, typer.Option(help="host:port of encoder_svc", callback=checked)
    ] = "127.0.0.1:7410",
) -> None:
    """Check another program's vectors, so that they may be searched.

    Encodes some of the pictures again by the served model, and writes into the file what it
    measured: without that no service starts with it. Changes nothing else.
    """
    try:
        asyncio.run(_check(file, engine, engine_url, encoder_address))
    except SettingsError as error:
        raise ValueError(str(error)) from error


async def _check(file: Path, engine: str, engine_url: str, encoder_address: str) -> None:
    attachments = Attachments.read(file, is_checked=False)
    async with Access.from_environment().open_aio_channel(encoder_address) as channel:
        encoder = RemoteEncoder(channel)
        model = await encoder.describe_model(Deadline.after(30.0))
        claims = {
            index_id: Checked(
                model.fingerprint, model.embedding_dimension, attachments.mapping(index_id)
            )
            for index_id in attachments.indexes
        }
        with TemporaryDirectory() as folder:  # so that services never see a claim alone
            claimed = Path(folder) / "claimed.json"
            attachments.write(claimed, claims)
            settings = EngineSettings(
                address="",
                metrics_port=0,
                engine=engine,
                engine_url=engine_url,
                attachments=str(claimed),
                shard_number=0,
                shard_count=1,
            )
            settings.check_store("INDEX_", "")
            shard = engine_shard(settings)
        assert shard is not None, "the settings name an outside engine"
        try:
            await shard.open()
            for index_id, claim in claims.items():
                claims[index_id] = found = await check_model(shard, index_id, encoder, claim)
                out.print(
                    f"{index_id} is of model {found.fingerprint}: nine tenths of "
                    f"{found.picture_count} vectors deviate by at most {found.deviation:.4f}"
                )
        finally:
            await shard.close()
    attachments.write(file, claims)
