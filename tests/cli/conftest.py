"""Builds the command line once a process, as a user's process does."""

import functools

import typer.main
import typer.testing

# Typer builds all commands with their options for each call, which takes most of it: 30 ms,
# where parsing takes one. Tests make two thousand calls.
_built = functools.cache(typer.main.get_command)
typer.main.get_command = _built
typer.testing._get_command = _built  # type: ignore[attr-defined]
