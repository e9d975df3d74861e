"""One name for one thing; those of the release before are understood, with a warning."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import typer
from typer.testing import CliRunner

import tandem
from tandem.cli.app import app
from tandem.cli.old_names import OLD_NAMES, with_new_names
from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.cli.test_search import FULL, serving_search

_COMMAND = re.compile(r"(?:^|[^-\w/.])tandem ([a-z][a-z-]+)(?: ([a-z][a-z-]+))?")


def test_each_new_name_is_an_option_and_no_old_one_is() -> None:
    """Or a warning would name what cannot be typed."""
    for command, names in OLD_NAMES.items():
        found = typer.main.get_command(app)
        for name in command.split():
            found = found.commands[name]  # type: ignore[attr-defined]
        options = {name for each in found.params for name in each.opts}

        assert set(names.values()) <= options, command
        assert not set(names) & options, command


def test_messages_name_commands_that_exist() -> None:
    group = typer.main.get_command(app)
    named: dict[tuple[str, str], Path] = {}
    for path in Path(tandem.__path__[0]).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "tandem " in text else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= dict.fromkeys(_COMMAND.findall(node.value), path)
    for (first, second), path in named.items():
        command = group.commands.get(first)  # type: ignore[attr-defined]
        assert command is not None, f"{path}: tandem {first}"
        subcommands = getattr(command, "commands", {})
        assert not second or not subcommands or second in subcommands, f"{path}: {first} {second}"
    assert ("models", "add") in named


def test_old_names_are_understood_with_a_warning() -> None:
    async def found(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        return pb.SearchItemsResponse(items=[pb.RankedItem(item_id="a")], coverage=FULL)

    old = ["--target=text", "--no-rerank", "--truncation", "truncate", "--full-coverage"]
    with serving_search(found) as (address, service):
        command = ["search", *old, "--address", address, "--", "--target"]
        result = CliRunner().invoke(app, command)

    assert result.exit_code == 0, result.stderr
    [request] = service.requests
    assert isinstance(request, pb.SearchItemsRequest)
    assert request.query.text == "--target"
    assert request.rerank_disabled
    assert request.full_coverage_required
    assert request.target_modality == content_pb2.MODALITY_TEXT
    assert request.truncation_policy == content_pb2.TRUNCATION_POLICY_TRUNCATE
    assert result.stderr.count("warning: ") == 4
    assert "warning: --target is now --target-modality" in result.stderr
    assert "warning: -" not in result.stdout


def test_a_name_is_old_in_its_command_alone() -> None:
    """`--address` of a search is the orchestrator's still."""
    assert with_new_names(["search"], ["--address", "a"]) == ["--address", "a"]
    assert with_new_names(["index", "tune"], ["--address", "a"]) == ["--shard-address", "a"]


NAMES = {
    "--count": {
        *("calibrate", "demo", "evaluate", "golden start", "ingest", "models calibrate"),
        *("neighbours build", "train"),
    },
    "--model-repository": {
        *("demo", "up", "models add", "models list", "models remove", "models swap"),
        *("models add-neighbours", "models verify"),
    },
    "--truncation-policy": {"evaluate", "ingest", "search"},
    "--rerank-k": {
        *("calibrate", "evaluate", "index compare", "models calibrate", "neighbours build"),
        "search",
    },
}


def test_one_thing_has_one_name() -> None:
    root = typer.main.get_command(app)
    having: dict[str, set[str]] = {}
    for group, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {"": command})
        for each, one in below.items():
            for name in NAMES.keys() & {name for every in one.params for name in every.opts}:
                having.setdefault(name, set()).add(f"{group} {each}".strip())

    assert having == NAMES
