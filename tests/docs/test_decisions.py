"""A decision fits one screen: what is more is history, and git has it."""

from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"


def word_count(text: str) -> int:
    """Counts words, not the bars and rules of tables."""
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def test_decisions_fit_one_screen() -> None:
    """45 lines and 520 words at most, with what would change our mind."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in DECISIONS.glob("0*.md")}

    assert len(texts) > 50
    assert {
        name: len(text.splitlines()) for name, text in texts.items() if text.count("\n") > 45
    } == {}
    assert {name: word_count(text) for name, text in texts.items() if word_count(text) > 520} == {}
    assert [name for name, text in texts.items() if "hat would change our mind" not in text] == []
