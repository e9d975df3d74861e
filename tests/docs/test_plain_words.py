"""The text uses the field's standard terms: docs/glossary.md lists them under "Standard terms"."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Add CHANGELOG.md, protos and code once their wording has changed.
SEARCHED = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/*.md",
    "deploy/*.md",
    "docs/**/*.md",
]
# Pages that code generates, and the page that lists the phrases.
UNSEARCHED = {"docs/metrics.md", "docs/settings.md", "docs/glossary.md"}
PHRASES = {
    r"nobody": "no one, or name who",
    r"whoever": "anyone who",
    r"anew": "again",
    r"beside": "next to, compared with, in addition to",
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
}
BANNED = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)


def found_in(text: str) -> list[str]:
    """Returns "line: phrase" for each phrase in prose; code and addresses may have anything."""
    code_or_target = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
    prose = code_or_target.sub(lambda found: "\n" * found[0].count("\n"), text)
    return [
        f"{number}: {match[0]}"
        for number, line in enumerate(prose.splitlines(), 1)
        for match in BANNED.finditer(line)
    ]


def pages() -> list[str]:
    """Returns the searched files, relative to the repository."""
    paths = [path for pattern in SEARCHED for path in ROOT.glob(pattern)]
    return sorted({path.relative_to(ROOT).as_posix() for path in paths} - UNSEARCHED)


@pytest.mark.parametrize("page", pages())
def test_a_page_uses_standard_terms(page: str) -> None:
    """PHRASES says what to write instead."""
    assert found_in((ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "phrase", ["Nobody", "is told", "went on", "mended", "the services behind"]
)
def test_the_search_finds_a_phrase(phrase: str) -> None:
    """The control: in prose it is found, with its line; in code it is not."""
    assert found_in(f"first\n{phrase} here") == [f"2: {BANNED.search(phrase)[0]}"]  # type: ignore[index]
    assert found_in(f"`{phrase}`\n```\n{phrase}\n```") == []


def test_pages_are_searched() -> None:
    """So that a moved folder does not empty the test."""
    assert len(pages()) > 70
