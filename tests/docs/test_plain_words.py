"""The text uses the field's standard terms: docs/glossary.md lists them under "Standard terms"."""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEARCHED = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/*.md",
    "deploy/*.md",
    "docs/**/*.md",
    "protos/**/*.proto",
    "tandem/**/*.py",
    "*_svc/**/*.py",
    "merged_svc/**/*.py",
    "integrations/*/tandem_*/**/*.py",
    "deploy/**/*.py",
    "benchmarks/**/*.py",
]
# Pages and stubs that programs generate, and the page that lists the phrases.
UNSEARCHED = re.compile(r"docs/(metrics|settings|glossary)\.md|tandem/v1/.*")
PHRASES = {
    r"nobody": "no one, or name who",
    r"whoever": "anyone who",
    r"anew": "again",
    r"(?<!--)beside": "next to, compared with, in addition to",
    r"told": "reported, logged; 'unless told' is 'by default'",
    r"to be had": "available",
    r"of late": "recently",
    r"hangs? on": "depends on",
    r"(goes|go|going|went) on": "continue",
    r"(was|were|is|are) asked for": "requested",
    r"spared": "the circuit breaker is open",
    r"once more": "again; retry",
    r"kept out": "rejected, excluded",
    r"less than (was|were|is|are)": "degraded",
    r"in what (it|an answer) is": "how it is degraded",
    r"services? behind": "downstream",
    r"(comes|came|come) to": "is, costs, amounts to",
    r"but for": "except",
    r"for want of": "because ... is missing",
    r"of one's own": "your own, separate",
    r"by turns": "alternating",
    r"in peace": "gracefully",
    r"mend(s|ed|ing)?": "repair, fix",
    r"under way": "in progress",
    r"has become of|becomes of": "the result, the outcome",
    r"whatever becomes": "independent of",
    r"that (is|are) none|it is none of": "invalid, not a ..., not one of",
    r"what it lacks": "what is missing",
    r"half a character": "a lone surrogate, half of a surrogate pair",
    r"no more asked": "not called",
}
# In names of tests, which have no room for the words around them.
TURNS_OF_NAMES = re.compile(
    r"(?<=_)(told|nobody|whoever|whatever|anew|beside|had|spared|once_more|what_is_no|that_is_none|"
    r"that_are_none|is_no_more|goes_on|go_on|went_on|asked_for|mends?)(?=_|$)"
)
TEST_NAMES = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
}
BANNED = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)


def found_in(prose: list[tuple[int, str]]) -> list[str]:
    """Returns "line: phrase" for each phrase in numbered lines."""
    return [f"{number}: {match[0]}" for number, line in prose for match in BANNED.finditer(line)]


def markdown_prose(text: str) -> list[tuple[int, str]]:
    """Returns a page's lines without code and link targets, which may have anything."""
    code_or_target = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
    prose = code_or_target.sub(lambda found: "\n" * found[0].count("\n"), text)
    return list(enumerate(prose.splitlines(), 1))


def python_prose(text: str) -> list[tuple[int, str]]:
    """Returns the comments and strings of a program, line by line; names may be anything."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    return [
        (token.start[0] + offset, line)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in kinds
        for offset, line in enumerate(token.string.splitlines())
    ]


def proto_prose(text: str) -> list[tuple[int, str]]:
    """Returns the comments of a proto."""
    return [
        (number, comment)
        for number, line in enumerate(text.splitlines(), 1)
        if (comment := line.partition("//")[2])
    ]


PROSE = {".md": markdown_prose, ".py": python_prose, ".proto": proto_prose}


def searched() -> list[str]:
    """Returns the searched files, relative to the repository."""
    paths = {path for pattern in SEARCHED for path in ROOT.glob(pattern)}
    names = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    return [name for name in names if not UNSEARCHED.fullmatch(name)]


def faults_of(name: str) -> list[str]:
    """Returns "name:line: phrase" for each phrase in a file's prose."""
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    # Most files have no phrase anywhere, and are not split into prose and code.
    prose = PROSE[path.suffix](text) if BANNED.search(text) else []
    return [f"{name}:{fault}" for fault in found_in(prose)]


def test_files_use_standard_terms() -> None:
    """PHRASES says what to write instead."""
    names = searched()
    assert len(names) > 900
    assert [fault for name in names for fault in faults_of(name)] == []


@pytest.mark.parametrize("phrase", ["Nobody", "services behind"])
def test_the_search_finds_a_phrase(phrase: str) -> None:
    """The control: in prose it is found, with its line; in code it is not."""
    found = BANNED.search(phrase)
    assert found is not None
    expected = [f"2: {found[0]}"]

    assert found_in(markdown_prose(f"first\n{phrase} here")) == expected
    assert found_in(markdown_prose(f"`{phrase}`\n```\n{phrase}\n```")) == []
    assert found_in(python_prose(f"x = 1\n# {phrase}\n")) == expected
    assert found_in(python_prose(f'x = 1\nraise ValueError(f"{phrase} {{x}}")\n')) == expected
    assert found_in(python_prose("told = beside(anew)\n")) == []
    assert found_in(proto_prose(f'syntax = "proto3";\n// {phrase}\n')) == expected


def test_tests_are_named_in_plain_words() -> None:
    """What is expected, under which condition: in the words of any other codebase."""
    assert sorted(name for name in TEST_NAMES if TURNS_OF_NAMES.search(name)) == []


def test_the_search_finds_a_turn_of_a_name() -> None:
    """The control."""
    assert TURNS_OF_NAMES.findall("test_what_is_no_file_is_told_whatever_becomes_of_it") == [
        "what_is_no", "told", "whatever",
    ]  # fmt: skip
    assert TURNS_OF_NAMES.findall("test_untold_none_is_not_an_error") == []
    assert len(TEST_NAMES) > 2_500
