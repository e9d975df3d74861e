"""A public class has a name of its own among all packages, so that it has one meaning on a page."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "tandem",
    "encoder_svc",
    "index_svc",
    "rerank_svc",
    "orchestrator_svc",
    "gateway_svc",
    "merged_svc",
)
GENERATED = ROOT / "tandem" / "v1"


def test_no_two_public_classes_share_a_name() -> None:
    """A reader, and a search for the name, would take one for the other."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if not path.is_relative_to(GENERATED):
                for node in ast.parse(path.read_text(encoding="utf-8")).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        places[node.name].append(str(path.relative_to(ROOT)))

    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
