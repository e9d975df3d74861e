"""Every command that calls a service shows what the environment names."""

import ast
from pathlib import Path

from tandem import cli

CLIENTS = {"Client", "AsyncClient"}
CHANNELS = {"insecure_channel", "secure_channel"}


def faults(source: str) -> list[str]:
    """Returns the calls in a program that would show nothing, whatever is named."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        has_access = any(keyword.arg == "access" for keyword in node.keywords)
        if name in CHANNELS or (name in CLIENTS and not has_access):
            found.append(f"line {node.lineno}: {ast.unparse(node.func)}")
    return found


def test_no_command_calls_without_access() -> None:
    """Clients get an Access, and no channel is opened without it."""
    found = {
        path.name: faults(path.read_text(encoding="utf-8"))
        for path in Path(cli.__path__[0]).rglob("*.py")
    }

    assert {name: each for name, each in found.items() if each} == {}


def test_a_call_without_access_would_be_seen() -> None:
    """The control: a client of each kind, and a channel, next to one that is right."""
    source = """
with Client(address) as client: pass
AsyncClient(address, timeout_seconds=1.0)
grpc.insecure_channel(address)
Client(address, access=Access.from_environment())
"""
    lines = {fault.partition(":")[0] for fault in faults(source)}

    assert lines == {"line 2", "line 3", "line 4"}
