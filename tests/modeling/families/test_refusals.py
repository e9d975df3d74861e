"""Every refusal of a published folder says what can be done, wherever it stands in the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandem.modeling.families as families
from tandem.modeling.families.published_folder import PublishedFolder

# After what is wrong, a verb that tells the reader to do something.
_REMEDY = re.compile(
    r"(?:; |: |, or |, and |\. )(?:take|copy|write|name|correct|set|see|download|add|train|let)\b"
    r"|pip install|SAVE_ONCE",
    re.IGNORECASE,
)
# Of a table of reasons, and of errors with a remedy of their own.
_PASSED_ON = {"_NOT_SERVED[kind]", "str(error)"}


def _texts() -> Iterator[tuple[str, str]]:
    """Yields place and text of each refusal to which the folder adds nothing."""
    for path in sorted(Path(families.__path__[0]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr == "refused":
                yield f"{path.name}:{node.lineno}", ast.unparse(node.args[0])


@pytest.mark.parametrize(("place", "text"), list(_texts()))
def test_a_refusal_says_what_to_do(place: str, text: str) -> None:
    assert text in _PASSED_ON or _REMEDY.search(text), f"{place}: {text}"


def test_a_message_of_a_library_becomes_one_line_without_its_trace(tmp_path: Path) -> None:
    said = (
        'size failed with error "Overflow\n\tException raised from unpack at numbers.h:7\nframe #0'
    )
    refused = PublishedFolder(tmp_path).refused_by_library("its weights", RuntimeError(said))
    assert str(refused) == (
        f'{tmp_path}: its weights: size failed with error "Overflow; take the file that the model '
        "was published with"
    )


def test_there_are_refusals() -> None:
    """The control: what is not found is not held to anything."""
    assert len(list(_texts())) > 25
    assert not _REMEDY.search("'its image processor keeps the shape of pictures: no square'")
