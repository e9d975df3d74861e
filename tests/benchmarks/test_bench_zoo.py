"""The benchmark of the zoo: its runs continue, and its tables say how sure they are."""

from pathlib import Path

import pytest

from benchmarks.bench.zoo import BATCH, done_in, main, plot, report, seeds_needed
from benchmarks.support.zoo_pictures import PicturePart, told_apart


def _run(seed: int, mean_recall: float, network: str = "vse_pp") -> dict[str, object]:
    return {
        "network": network,
        "hinges": "all",
        "reader": "gru",
        "seed": seed,
        "rounds": 2,
        "cpu_seconds": 1.0,
        "parameters": 10,
        "mean_recall": mean_recall,
        "t2i_r1": 5.0,
    }


def test_a_table_has_spread_and_seeds() -> None:
    """Mean 50, sample deviation 2: two points need 16 seeds of each system."""
    runs = [_run(1, 48.0), _run(2, 50.0), _run(3, 52.0), _run(1, 30.0, "saf")]

    _, _, first, second = report(runs)

    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[:7] == ["vse_pp", "all", "gru", "3", "50.0", "2.0", "48.0 to 52.0"]
    assert cells[8:11] == ["63", "16", "3"]
    assert second.startswith("| saf | all | gru | 1 | 30.0 |  |")


@pytest.mark.parametrize(("spread", "points", "count"), [(2.0, 2.0, 16), (0.1, 5.0, 2)])
def test_seeds_follow_from_the_spread(spread: float, points: float, count: int) -> None:
    """2 (1.96 + 0.84)² (s / d)², and two at least."""
    assert seeds_needed(spread, points) == count


def test_runs_that_are_there_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two seeds of two rounds, scenes of val among them, then a third; the plot is drawn."""
    path = tmp_path / "runs.jsonl"
    arguments = ["zoo", str(path), "--hinges", "all", "--rounds", "2"]
    arguments += [
        "--families",
        str(BATCH),
        "--val-families",
        "2",
        "--test-families",
        "3",
        "--seeds",
    ]
    monkeypatch.setattr("sys.argv", [*arguments, "2"])
    main()
    first = done_in(path)
    monkeypatch.setattr("sys.argv", [*arguments, "3"])
    main()

    runs = done_in(path)
    assert runs[:2] == first
    assert [run["seed"] for run in runs] == [1, 2, 3]
    assert len(capsys.readouterr().out.splitlines()) == 3
    plot(runs, tmp_path / "spread.png")
    assert (tmp_path / "spread.png").stat().st_size > 1_000


def test_test_pictures_have_captions_of_their_own() -> None:
    part = PicturePart("emoji", "train", 60, "en")
    records = part.records()

    asked = list(told_apart(records))

    assert len(records) == 60
    assert len({each.captions[0].text.casefold() for each in records}) < 60
    assert 0 < len(asked) == len({each.captions[0].text.casefold() for each in asked})
    assert {one.language for each in records for one in each.captions} == {"en"}
    with pytest.raises(ValueError, match="emoji train has no caption in 'xx'"):
        PicturePart("emoji", "train", 4, "xx").records()
