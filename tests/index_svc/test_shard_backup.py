"""Backs up a real index_svc by calls of an operator."""

import asyncio
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from index_svc.assembly import index_service
from index_svc.settings import IndexSettings
from tandem.chassis.calls.status import error_from_rpc
from tandem.chassis.settings import SettingsError
from tandem.cli.app import app
from tandem.errors import RequestMalformed, ServiceUnavailable
from tandem.local.item_store.backup import backups_in, restore
from tandem.platform.files.object_store import object_folder
from tandem.stack.free_ports import free_ports
from tandem.v1 import index_admin_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.index_svc.encoded_items import upsert_request
from tests.support.index_svc.shard_process import running
from tests.support.item_store.made_items import image_item
from tests.support.object_store.faulty_s3 import FaultyS3, Reply, faulty_s3, no_fault
from tests.support.object_store.moto_server import s3_environment

PLACE = "s3://backups/tandem"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """Starts a server of S3 to which the environment of index_svc leads."""
    with faulty_s3() as server:
        for name, value in s3_environment(server.endpoint).items():
            monkeypatch.setenv(name, value)
        yield server


async def backed_up(admin: IndexAdminServiceStub, folder: str) -> pb.ShardBackup:
    *progress, last = [
        each async for each in admin.BackUpShard(pb.BackUpShardRequest(folder=folder))
    ]
    assert progress[-1].uploaded_bytes <= progress[-1].upload_limit_bytes
    return last.backup


def backup_time_seconds(metrics_port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as response:
        metrics = response.read().decode()
    [line] = re.findall(r"^tandem_index_backup_time_seconds{.*", metrics, re.M)
    return float(line.split()[1])


async def refused(admin: IndexAdminServiceStub, folder: str) -> Exception:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await backed_up(admin, folder)
    return error_from_rpc(caught.value, "index")


async def test_a_call_backs_up_below_the_operators_place(s3: FaultyS3, tmp_path: Path) -> None:
    """The page's command does it too, and brings only what was written since."""
    [metrics_port] = free_ports(1)
    settings = {"BACKUP_URL": PLACE, "METRICS_PORT": metrics_port}
    async with running(tmp_path / "shard", settings=settings) as (shard, channel):
        index, admin = IndexServiceStub(channel), IndexAdminServiceStub(channel)
        await index.UpsertItems(upsert_request([image_item(f"i{n}", n) for n in range(50)]))
        first = await backed_up(admin, "nightly")
        seconds = await asyncio.to_thread(backup_time_seconds, metrics_port)
        assert seconds == pytest.approx(time.time(), abs=60)
        await index.UpsertItems(upsert_request([image_item("new")]))
        command = ["index", "backup", "nightly", "--shard-address", f"127.0.0.1:{shard.port}"]
        answer = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert answer.exit_code == 0, answer.output
        name = answer.output.splitlines()[-1]

        for folder in ("", "../other", "a/b", "s3://elsewhere/x", "A"):
            error = await refused(admin, folder)
            assert isinstance(error, RequestMalformed)
            assert "folder is not a name" in str(error)

    assert first.sequence == 50
    assert backups_in(object_folder(PLACE)) == [f"{PLACE}/{first.name}", f"{PLACE}/{name}"]
    assert all(key.startswith("tandem/nightly/shard-0-of-1/") for key in s3.objects)
    restored = restore(f"{PLACE}/{name}", tmp_path / "new")
    assert restored.sequence == 51
    assert restored.data_bytes - first.data_bytes < 5_000


async def test_backups_by_call_are_off_without_a_place(tmp_path: Path) -> None:
    async with running(tmp_path / "shard") as (_, channel):
        error = await refused(IndexAdminServiceStub(channel), "nightly")

    assert isinstance(error, RequestMalformed)
    assert "INDEX_BACKUP_URL" in str(error)


async def test_a_caller_who_leaves_ends_the_backup(s3: FaultyS3, tmp_path: Path) -> None:
    """A second caller meanwhile has its turn then."""
    reached, let_go = threading.Event(), threading.Event()

    def hold(method: str, key: str, reply: Reply) -> Reply:
        if method == "PUT":
            reached.set()
            let_go.wait(60)
        return reply

    s3.fault = hold
    async with running(tmp_path / "shard", settings={"BACKUP_URL": PLACE}) as (_, channel):
        index, admin = IndexServiceStub(channel), IndexAdminServiceStub(channel)
        await index.UpsertItems(upsert_request([image_item("one")]))
        call = admin.BackUpShard(pb.BackUpShardRequest(folder="nightly"))
        assert await asyncio.to_thread(reached.wait, 60)
        second = asyncio.create_task(backed_up(admin, "nightly"))
        await asyncio.sleep(0.5)
        assert backups_in(object_folder(PLACE)) == []
        s3.fault = no_fault

        call.cancel()

        backup = await asyncio.wait_for(second, 60)
        let_go.set()

    assert backups_in(object_folder(PLACE)) == [f"{PLACE}/{backup.name}"]


async def test_a_fault_of_the_object_store_reaches_the_caller(s3: FaultyS3, tmp_path: Path) -> None:
    s3.stores_as = flipped
    async with running(tmp_path / "shard", settings={"BACKUP_URL": PLACE}) as (_, channel):
        await IndexServiceStub(channel).UpsertItems(upsert_request([image_item("one")]))
        error = await refused(IndexAdminServiceStub(channel), "nightly")

    assert isinstance(error, ServiceUnavailable)
    assert "is damaged" in str(error)


def flipped(key: str, data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def test_an_invalid_backup_url_stops_the_start(tmp_path: Path) -> None:
    settings = IndexSettings(
        store_path=str(tmp_path), shard_number=0, shard_count=1, backup_url="foo://backups"
    )

    with pytest.raises(SettingsError, match=r"INDEX_BACKUP_URL: foo://backups: .*recognise"):
        index_service(settings)
