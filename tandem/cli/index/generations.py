"""`tandem index create` and `rollback`, and how far generations are."""

import time
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict

from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork, duration
from tandem.client.calls.refusal import Call, calling
from tandem.contract.generation_ids import alias_of, generation_id, generation_number
from tandem.errors import PermissionDenied, ServerUnknown
from tandem.v1 import generation_service_pb2 as pb
from tandem.v1.generation_service_pb2_grpc import GenerationServiceStub

ALIAS = Annotated[str, typer.Argument(help="index that callers name, for example scenes")]

# A promotion brings the last changes first, for up to 30 s.
REQUEST_SECONDS = 120.0
_POLL_SECONDS = 1.0


@with_json
def create(
    name: ALIAS,
    wait: Annotated[bool, "wait until it has every item, with progress"] = False,
    address: ADDRESS = DEFAULT_ADDRESS,
) -> None:
    """Begin a generation of the second model, filled while the first serves.

    Serve the second model with tandem up --next first. Searches and writes continue as before.
    """
    with calling(address, GenerationServiceStub) as call:
        made = call("CreateGeneration", pb.CreateGenerationRequest(index_id=name))
        out.print(f"{made.index_id}: gets the items of {name}, by model {made.model_fingerprint}")
        with LongWork(often_short=True) as work:
            while wait and not _is_filled(listed_alias(call, name), work):
                time.sleep(_POLL_SECONDS)
    answer({"index_id": made.index_id, "model_fingerprint": made.model_fingerprint})
    if not wait:
        out.print("how far it is: tandem index list")


@with_json
def roll_back(
    name: ALIAS,
    why: Annotated[str, "reason, which tandem index list shows"] = "by hand",
    address: ADDRESS = DEFAULT_ADDRESS,
) -> None:
    """Have the generation serve again that did before the last promotion.

    It has every write since, for a day after the promotion.
    """
    with calling(address, GenerationServiceStub) as call:
        request = pb.RollBackGenerationRequest(index_id=name, why=why)
        serving = call("RollBackGeneration", request, REQUEST_SECONDS).index_id
    answer({"index_id": name, "serving_id": serving})
    out.print(f"{name}: {serving} serves again")


def drop_generation(index_id: str, address: str) -> None:
    """Deletes a generation that does not serve; NAME@1 is the first."""
    first_or_later = generation_id(alias_of(index_id), generation_number(index_id))
    with calling(address, GenerationServiceStub) as call:
        request = pb.DropGenerationRequest(index_id=first_or_later)
        call("DropGeneration", request, REQUEST_SECONDS)


def listed_generations(address: str) -> list[pb.AliasGenerations]:
    """Returns aliases with their generations; none to a caller that may not administer.

    Nor has a server of an earlier release any, which does not know the method.
    """
    try:
        with calling(address, GenerationServiceStub) as call:
            found = call("ListGenerations", pb.ListGenerationsRequest())
    except (PermissionDenied, ServerUnknown):
        return []
    return [each for each in found.aliases if len(each.generations) > 1 or each.last_outcome]


def print_generations(aliases: list[pb.AliasGenerations]) -> list[object]:
    """Prints how far each generation is, and returns it for JSON."""
    rows = [["generation", "state", "items", "behind", "left", "model"]]
    for alias in aliases:
        for each in alias.generations:
            state = pb.GenerationState.Name(each.state).removeprefix("GENERATION_STATE_").lower()
            left = duration(each.remaining_seconds) if each.HasField("remaining_seconds") else ""
            counts = (f"{each.item_count:,}", f"{each.lag_count:,}")
            rows.append([each.index_id, state, *counts, left, each.model_fingerprint[:12]])
    if aliases:
        out.rows(rows, left=[0, 1])
    for alias in aliases:
        if alias.rolled_back_why:
            out.print(f"{alias.index_id} was rolled back: {alias.rolled_back_why}")
        for each in alias.generations:
            if each.waits_for:
                errors.print(f"warning: {each.index_id} waits: {each.waits_for}")
            for item_id, why in each.failed_items.items():
                errors.print(f"warning: {each.index_id} lacks {item_id}: {why}")
    return [
        MessageToDict(
            each, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for each in aliases
    ]


def listed_alias(call: Call, name: str) -> pb.AliasGenerations:
    """Returns the alias with its generations."""
    found = call("ListGenerations", pb.ListGenerationsRequest(index_id=name))
    alias: pb.AliasGenerations
    [alias] = found.aliases
    return alias


def other_of(alias: pb.AliasGenerations) -> pb.Generation:
    """Returns the generation that does not serve; raises ValueError if there is none."""
    others = [each for each in alias.generations if each.index_id != alias.serving_id]
    if not others:
        raise ValueError(
            f"{alias.index_id} has no other generation: tandem index create {alias.index_id}"
        )
    return others[0]


def _is_filled(alias: pb.AliasGenerations, work: LongWork) -> bool:
    new, counts = other_of(alias), {each.index_id: each.item_count for each in alias.generations}
    total = counts[alias.serving_id]
    note = f"waits: {new.waits_for}" if new.waits_for else ""
    work.show(f"fill {new.index_id}", min(new.scanned_count, total), total, unit="items", note=note)
    return new.state == pb.GENERATION_STATE_FOLLOWING
