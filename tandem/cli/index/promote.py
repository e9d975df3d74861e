"""`tandem index promote`: has another generation serve that is no worse."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.evaluate.compare import GATE_STATUS
from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.index.compare import compared
from tandem.cli.index.generations import ALIAS, REQUEST_SECONDS, listed_alias, other_of
from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS
from tandem.cli.terminal.console import out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.client.calls.refusal import calling
from tandem.v1 import generation_service_pb2 as pb
from tandem.v1.generation_service_pb2_grpc import GenerationServiceStub


@with_json
def promote(
    name: ALIAS,
    queries: Annotated[
        Path | None, typer.Option(help="judged queries: a folder or a .jsonl file")
    ] = None,
    ungated: Annotated[str, "why no judged queries are needed, for the log"] = "",
    address: ADDRESS = DEFAULT_ADDRESS,
) -> None:
    """Have the other generation serve, once it has every item.

    Exits with 3 if it is worse by the judged queries. Writes wait for at most half a second. The
    generation before gets every write for a day, so that tandem index rollback loses nothing.
    """
    if (queries is None) == (not ungated):
        raise ValueError("give --queries, by which it is no worse, or --ungated with a reason")
    with calling(address, GenerationServiceStub) as call:
        alias = listed_alias(call, name)
        request = pb.PromoteGenerationRequest(index_id=name, ungated_why=ungated)
        if queries is not None:
            asked = EvaluateOptions(address=address)
            if compared(asked, alias.serving_id, other_of(alias).index_id, queries):
                raise typer.Exit(GATE_STATUS)
            request.evidence = f"no worse by the judged queries {queries.name}"
        serving = call("PromoteGeneration", request, REQUEST_SECONDS).index_id
    answer({"index_id": name, "serving_id": serving})
    out.print(f"{name}: {serving} serves now; tandem index rollback {name} goes back")
