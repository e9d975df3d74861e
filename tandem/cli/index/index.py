"""`tandem index describe`, `tune`, `rebuild` and `advise`: asks shards for their indexes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import grpc
import typer
from google.protobuf.json_format import MessageToDict

from tandem.cli.options import checked
from tandem.cli.terminal.console import out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.client.access import Access
from tandem.client.calls.refusal import error_of
from tandem.contract.content import Modality
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.v1 import content_pb2
from tandem.v1 import index_admin_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub

ADDRESSES = Annotated[
    list[str],
    typer.Option(
        "--shard-address",
        help="host:port of a shard's index_svc; repeat for each shard",
        envvar="TANDEM_SHARD_ADDRESSES",
        callback=checked,
    ),
]
DEFAULT_ADDRESSES = ["127.0.0.1:7420", "127.0.0.1:7421"]
INDEX = Annotated[str, typer.Argument(help="index id, for example scenes")]
MODALITY = Annotated[Modality | None, typer.Option(help="modality; by default both")]

Metadata = tuple[tuple[str, str], ...]

_TIMEOUT_SECONDS = 10.0
_ADVICE_TIMEOUT_SECONDS = 3600.0


@with_json
def describe(
    index_id: Annotated[str, typer.Argument(help="index id; by default all")] = "",
    addresses: ADDRESSES = DEFAULT_ADDRESSES,
) -> None:
    """Show every index shard by shard, for operators.

    Asks the shards themselves, which needs the right admin; tandem index show asks the
    orchestrator.
    """
    rows = [["index", "shard", "of", "type", "items", "dead", "tail", "MB", "recall", "live"]]
    notes: list[str] = []
    shards = []
    for number, address in enumerate(addresses):
        with _admin(address) as (stub, metadata):
            request = pb.DescribeIndexesRequest(index_id=index_id)
            response = stub.DescribeIndexes(request, timeout=_TIMEOUT_SECONDS, metadata=metadata)
        found = MessageToDict(
            response,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        shards.append({"shard_number": number, "address": address} | found)
        for one in response.descriptions:
            rows.append([one.index_id, str(number), *_cells(one)])
            its_notes = (note for note in (one.fallback_reason, one.activity) if note)
            notes.extend(f"{one.index_id} on shard {number}: {note}" for note in its_notes)
    answer({"shards": shards})
    out.rows(rows, left=range(4))
    for line in notes:
        out.print(line)


def tune(
    index_id: INDEX,
    index_type: Annotated[
        str, typer.Option("--type", help="auto, Flat, or a FAISS factory string")
    ] = "auto",
    parameter: Annotated[
        list[str] | None, "a search parameter, such as nprobe=16; by default measured"
    ] = None,
    recall_target: Annotated[float, "target recall at 20, 0 to 1"] = 0.98,
    memory_mb: Annotated[
        int, typer.Option("--memory-mb", help="limit of FAISS's codes, for auto; 0 for no limit")
    ] = 0,
    modality: MODALITY = None,
    addresses: ADDRESSES = DEFAULT_ADDRESSES,
) -> None:
    """Set the type or parameters of an index, permanently."""
    tuning = pb.IndexTuning(
        index_type=index_type,
        parameters=dict(_parameter(text) for text in parameter or ()),
        recall_target=recall_target,
        memory_bytes=memory_mb * 10**6,
    )
    for address in addresses:
        with _admin(address) as (stub, metadata):
            stub.TuneIndex(
                pb.TuneIndexRequest(index_id=index_id, modality=_to_proto(modality), tuning=tuning),
                timeout=_TIMEOUT_SECONDS,
                metadata=metadata,
            )
    out.print(f"{index_id}: tuned on {len(addresses)} shards; tandem index describe shows it")


def rebuild(
    index_id: INDEX, modality: MODALITY = None, addresses: ADDRESSES = DEFAULT_ADDRESSES
) -> None:
    """Rebuild an index in the background, without deleted items."""
    for address in addresses:
        with _admin(address) as (stub, metadata):
            stub.RebuildIndex(
                pb.RebuildIndexRequest(index_id=index_id, modality=_to_proto(modality)),
                timeout=_TIMEOUT_SECONDS,
                metadata=metadata,
            )
    out.print(f"{index_id}: asked {len(addresses)} shards; tandem index describe shows them at it")


@with_json
def backup(
    folder: Annotated[str, typer.Argument(help="folder below the shards' INDEX_BACKUP_URL")],
    addresses: ADDRESSES = DEFAULT_ADDRESSES,
) -> None:
    """Have each shard back itself up to its operator's object store."""
    names = []
    for address in addresses:
        with _admin(address) as (stub, metadata), LongWork(often_short=True) as work:
            for response in stub.BackUpShard(
                pb.BackUpShardRequest(folder=folder), metadata=metadata
            ):
                work.show(
                    f"back up {address}", response.uploaded_bytes, response.upload_limit_bytes
                )
        names.append(response.backup.name)
        out.print(response.backup.name)
    answer({"backups": names})


def advise(
    index_id: INDEX,
    modality: Annotated[Modality, "which part of it"] = Modality.IMAGE,
    index_type: Annotated[
        list[str] | None,
        typer.Option("--type", help="index type to measure; by default a choice by size"),
    ] = None,
    recall_target: Annotated[float, "target recall at 20, 0 to 1"] = 0.98,
    memory_mb: Annotated[
        int, typer.Option("--memory-mb", help="limit of FAISS's codes; 0 for no limit")
    ] = 0,
    address: Annotated[
        str,
        typer.Option("--shard-address", help="host:port of a shard's index_svc", callback=checked),
    ] = DEFAULT_ADDRESSES[0],
) -> None:
    """Measure what other FAISS types would cost.

    Builds several over the index's items.
    This takes minutes and, on the shard, the memory of one more index.
    """
    request = pb.AdviseIndexTypeRequest(
        index_id=index_id,
        modality=MODALITY_WIRE.to_proto(modality),
        recall_target=recall_target,
        memory_bytes=memory_mb * 10**6,
        index_types=index_type or [],
    )
    choices: list[pb.AdviseIndexTypeResponse] = []
    try:
        with _admin(address) as (stub, metadata), LongWork() as work:
            work.show(f"advise on {index_id}", 0, unit="types")
            for choice in stub.AdviseIndexType(
                request, timeout=_ADVICE_TIMEOUT_SECONDS, metadata=metadata
            ):
                choices.append(choice)
                work.show(f"advise on {index_id}", len(choices), note=f"last {choice.index_type}")
    finally:
        # Print finished measurements, even if the rest fails.
        if choices:
            out.rows(_choice_rows(choices), left=[0, 1])
        for choice in choices:
            if choice.refusal:
                out.print(f"{choice.index_type}: {choice.refusal}")
    fitting = [choice for choice in choices if choice.fits]
    if not fitting:
        out.print("none reaches the recall within the memory: ask for less, or give more")
        return
    best = min(fitting, key=lambda choice: choice.search_p50_duration.ToNanoseconds())
    parameters = "".join(
        f" --parameter {name}={value:g}" for name, value in best.parameters.items()
    )
    out.print(
        f"fastest that fits: tandem index tune {index_id} --modality {modality.value} "
        f"--type {best.index_type}{parameters}"
    )


@contextmanager
def _admin(address: str) -> Iterator[tuple[IndexAdminServiceStub, Metadata]]:
    """Yields the shard's stub, and the metadata of each call; raises a TandemError."""
    access = Access.from_environment()
    # Not the SDK's options, because a shard describes its indexes also while it is not serving.
    with access.open_channel(address, options=()) as channel:
        try:
            yield IndexAdminServiceStub(channel), access.metadata()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise ValueError(
                    f"no index_svc answers at {address}, but something else: --shard-address is a "
                    f"shard's, such as {DEFAULT_ADDRESSES[0]}; tandem up prints them"
                ) from error
            raise error_of(error, address) from error


def _cells(one: pb.IndexDescription) -> list[str]:
    live = "".join(f"{100 * recall.recall:.1f}" for recall in one.live_recalls.values())
    modality = MODALITY_WIRE.from_proto(one.modality)
    parameters = " ".join(f"{name}={value:g}" for name, value in one.parameters.items())
    return [
        "" if modality is None else modality.value,
        f"{one.index_type} {parameters}".strip(),
        f"{one.item_count:,}",
        f"{one.dead_row_count:,}",
        f"{one.tail_row_count:,}",
        f"{one.index_bytes / 1e6:.1f}",
        f"{one.built_recall_percent:.1f}" if one.HasField("built_recall_percent") else "",
        live,
    ]


def _choice_rows(choices: list[pb.AdviseIndexTypeResponse]) -> list[list[str]]:
    rows = [["type", "parameters", "recall@20", "p50 ms", "p99 ms", "build s", "MB", "fits"]]
    for choice in choices:
        if choice.refusal:
            rows.append([choice.index_type, *[""] * 6, "no"])
            continue
        rows.append(
            [
                choice.index_type,
                " ".join(f"{name}={value:g}" for name, value in choice.parameters.items()),
                f"{choice.recall_percent:.1f}",
                f"{choice.search_p50_duration.ToNanoseconds() / 1e6:.2f}",
                f"{choice.search_p99_duration.ToNanoseconds() / 1e6:.2f}",
                f"{choice.build_duration.ToNanoseconds() / 1e9:.1f}",
                f"{choice.index_bytes / 1e6:.1f}",
                "yes" if choice.fits else "no",
            ]
        )
    return rows


def _to_proto(modality: Modality | None) -> content_pb2.Modality | None:
    return None if modality is None else MODALITY_WIRE.to_proto(modality)


def _parameter(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    try:
        if not separator:
            raise ValueError
        return name, float(value)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not like nprobe=16") from None
