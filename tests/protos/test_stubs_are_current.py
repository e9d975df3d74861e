"""The committed stubs are what the protos generate."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[2]


def test_committed_stubs_equal_generated_ones(tmp_path: Path) -> None:
    """`make protos` would change nothing."""
    protos = sorted((ROOT / "protos").glob("tandem/v1/*.proto"))
    services = [proto for proto in protos if proto.stem.endswith("_service")]

    generate(protos, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}")
    generate(services, f"--grpc_python_out={tmp_path}")

    generated = {path.name: path.read_text() for path in (tmp_path / "tandem/v1").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "tandem/v1").glob("*_pb2*")}
    assert committed == generated


def generate(protos: list[Path], *outputs: str) -> None:
    """Runs protoc as `python -m grpc_tools.protoc` does, which adds Google's own protos."""
    google_protos = resources.files("grpc_tools") / "_proto"
    includes = (f"-I{ROOT / 'protos'}", f"-I{google_protos}")
    assert protoc.main(["protoc", *includes, *outputs, *map(str, protos)]) == 0
