"""Accepts option names of the previous release for one release, with a warning."""

from collections.abc import Mapping, Sequence
from typing import Final

from tandem.cli.terminal.console import errors

_REPOSITORY: Final = {"--repository": "--model-repository"}
_SHARD: Final = {"--address": "--shard-address"}
_POOLS: Final = {"--gallery-count": "--count", "--k": "--rerank-k"}

OLD_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "demo": {"--scene-count": "--count"},
    "evaluate": _POOLS | {"--fusion": "--fusion-k"},
    "index advise": _SHARD,
    "index describe": _SHARD,
    "index rebuild": _SHARD,
    "index tune": _SHARD,
    "ingest": {"--long-texts": "--truncation-policy"},
    "models add": _REPOSITORY,
    "models calibrate": _POOLS,
    "models list": _REPOSITORY,
    "models remove": _REPOSITORY,
    "models swap": _REPOSITORY,
    "models verify": _REPOSITORY,
    "search": {
        "--all-modalities": "--all-modalities-included",
        "--full-coverage": "--full-coverage-required",
        "--no-rerank": "--rerank-disabled",
        "--require-rerank": "--rerank-required",
        "--target": "--target-modality",
        "--truncation": "--truncation-policy",
    },
    "train": {"--pretrained": "--from"},
}
"""New names by old names, by command: docs/decisions/0045-one-name-for-one-thing.md."""

_DEFAULTS: Final[Mapping[str, frozenset[str]]] = {
    "search": frozenset({"--rerank", "--no-attributes"}),
}
"""Options that are the default now, by command."""


def with_new_names(command: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with current option names; warns of each old one on stderr."""
    path = " ".join(command)
    names, defaults = OLD_NAMES.get(path, {}), _DEFAULTS.get(path, frozenset())
    renamed: list[str] = []
    for number, argument in enumerate(arguments):
        if argument == "--":
            return [*renamed, *arguments[number:]]
        name, equals, value = argument.partition("=")
        if argument in defaults:
            errors.print(
                f"warning: {name} is the default and is ignored; the next release removes it"
            )
        elif (new := names.get(name)) is not None:
            errors.print(f"warning: {name} is now {new}; the next release removes the old name")
            renamed.append(f"{new}{equals}{value}")
        else:
            renamed.append(argument)
    return renamed
