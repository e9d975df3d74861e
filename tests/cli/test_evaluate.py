"""`tandem evaluate` of a checkpoint, which needs no server; the served path is tested in system."""

import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.reports.report import Report
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.image_sources.region_tokens import write_regions
from tandem.modeling.joint_model import JointModel
from tandem.modeling.trained_pictures import TrainedPictures
from tests.support.corpus.written_karpathy import write_karpathy
from tests.support.modeling.separate_checkpoint import save_be_and_ce
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer


def untrained(folder: Path, seed: int) -> Path:
    """Writes an untrained model that knows the words of the galleries below."""
    records = [*scene_records("test", 1, 8), *scene_records("train", 2, 12)]
    captions = (caption.text for record in records for caption in record.captions)
    save_tiny_checkpoint(folder, seed=seed, texts=tuple(captions))
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model."""
    return untrained(tmp_path_factory.mktemp("checkpoint"), seed=4)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that retrieves in another order, as the test of it shows."""
    return untrained(tmp_path_factory.mktemp("other"), seed=2)


def run(*arguments: str) -> tuple[int, str]:
    """Returns the exit status and what was printed, both streams."""
    result = CliRunner().invoke(app, ["evaluate", "--count", "8", *arguments])
    error = "" if isinstance(result.exception, SystemExit) else str(result.exception or "")
    return result.exit_code, result.output + error


def test_an_option_that_judged_queries_would_ignore_is_refused() -> None:
    for words in (["photos"], ["--folds", "2"], ["--query-count", "5"], ["--checkpoint", "x"]):
        command = ["evaluate", *words, "--queries", "judged", "--index", "photos"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2
        assert "--queries asks a served index as it stands" in result.output
    assert run("--queries", "judged")[0] == 2


def test_each_pool_size_is_a_row(checkpoint: Path) -> None:
    status, output = run("--checkpoint", str(checkpoint), "--rerank-k", "8", "--rerank-k", "2")

    assert status == 0, output
    shown, _, _ = output.partition("best expected R@1")
    assert [shown.count(each) for each in ("text→image ", "BE + CE 2 ", "BE + CE 8 ")] == [1, 2, 2]
    assert output.index("BE + CE 2 ") < output.index("BE + CE 8 ")


def test_a_caption_that_the_retriever_cannot_read_is_skipped(
    checkpoint: Path, tmp_path: Path
) -> None:
    """It fits the one that reads pairs, and would have stopped the other without a name."""
    narrow, trained = tmp_path / "narrow", load_checkpoint(checkpoint)
    config = replace(trained.model.config, max_text_tokens=27)
    save_checkpoint(narrow, JointModel(config), trained.tokenizer, {})
    both = ["--checkpoint", str(checkpoint), "--retriever", str(narrow)]

    stopped, told = run(*both)
    status, output = run(*both, "--on-error", "skip")

    assert stopped == 1
    assert "with --on-error skip" in told
    assert status == 0, output
    assert "skipped records: 3 (caption too long 3)" in output


def test_distractors_are_never_queries(checkpoint: Path, tmp_path: Path) -> None:
    """Of the same split they are those behind: else each would be a wrong answer to itself."""
    for letter in "abcd":
        Image.new("RGB", (40, 40), "red").save(tmp_path / f"{letter}.png")
        (tmp_path / f"{letter}.txt").write_text(f"two dogs {letter}")
    corpus = f"folder:{tmp_path}"
    arguments = [corpus, "--split", "all", "--count", "2", "--checkpoint", str(checkpoint)]

    result = CliRunner().invoke(app, ["evaluate", *arguments, "--distractors", f"{corpus}:all:9"])

    assert result.exit_code == 0, result.output
    assert "2 distractors" in result.output
    assert "best expected R@1: text→image 100.0, image→text 100.0" in result.output


def test_any_match_may_answer(checkpoint: Path, tmp_path: Path) -> None:
    """Drawings of one concept share their captions: each is the answer, or all. And not mixed."""
    for letter in "abcd":
        Image.new("RGB", (40, 40), "red").save(tmp_path / f"{letter}.png")
        (tmp_path / f"{letter}.txt").write_text("two dogs")
    asked = [f"folder:{tmp_path}", "--split", "all", "--checkpoint", str(checkpoint)]

    reports = []
    for name, options in (("own", []), ("any", ["--any-match"])):
        status, output = run(*asked, *options, "--report", str(tmp_path / name))
        assert status == 0, output
        reports.append(Report.read(tmp_path / name / "report.json"))

    own, any_match = reports
    assert own.about["best expected R@1"] == "text→image 25.0, image→text 25.0"
    assert any_match.about["best expected R@1"] == "text→image 100.0, image→text 100.0"
    assert any_match.about["answers"] == "all that shares the caption word by word"
    assert all(set(each.ranks) == {1} for each in any_match.rankings)
    assert any(set(each.ranks) != {1} for each in own.rankings)
    paths = [f"{name}={tmp_path / name / 'report.json'}" for name in ("own", "any")]
    compared = CliRunner().invoke(app, ["compare", *paths])
    assert "measured with answers" in str(compared.exception)


def test_a_picture_that_was_trained_on_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    pets, trained = tmp_path / "pets", tmp_path / "trained"
    pets.mkdir()
    for letter, colour in zip("abcd", ("red", "green", "blue", "white"), strict=True):
        Image.new("RGB", (40, 40), colour).save(pets / f"{letter}.png")
        (pets / f"{letter}.txt").write_text(f"two dogs {letter}")
    untouched = load_checkpoint(checkpoint)
    seen = [sha256((pets / "b.png").read_bytes()).digest(), b"another picture of 32 bytes or so"]
    save_checkpoint(
        trained,
        untouched.model,
        untouched.tokenizer,
        {},
        trained_pictures=TrainedPictures.of(seen),
    )
    asked = [f"folder:{pets}", "--split", "all", "--count", "4"]
    folder = tmp_path / "report"

    refused, says = run(*asked, "--checkpoint", str(trained))
    allowed, output = run(
        *asked, "--checkpoint", str(trained), "--allow-trained", "--report", str(folder)
    )
    of_another, _ = run(*asked, "--checkpoint", str(checkpoint))
    beside, also_says = run(*asked, "--checkpoint", str(checkpoint), "--retriever", str(trained))
    for name in ("b.png", "b.txt"):
        (pets / name).unlink()
    rest, of_rest = run(
        *asked[:-1], "3", "--checkpoint", str(trained), "--report", str(folder / "r")
    )

    assert (refused, allowed, of_another, beside, rest) == (1, 0, 0, 1, 0), output + of_rest
    for text in (says, also_says):
        assert "1 of 4 pictures were trained on, b" in text
        assert "--allow-trained" in text
    files = CheckpointFiles.read(trained)
    served_as = export_manifest(files, Precision.FP32, {}).fingerprint
    assert Report.read(folder).about["model"] == served_as
    seen_of = "asking pictures that were trained on"
    assert Report.read(folder).about[seen_of] == "1 of 4"
    assert Report.read(folder / "r").about[seen_of] == "0 of 3"


def two_towers(folder: Path) -> Path:
    """Writes an untrained bi-encoder without a matcher, which is not a cross-encoder."""
    records = [*scene_records("test", 1, 8), *scene_records("train", 2, 12)]
    tokenizer = tiny_tokenizer(tuple(each.text for record in records for each in record.captions))
    config = JointConfig(
        vocabulary_size=tokenizer.get_vocab_size(),
        width=16,
        layer_count=1,
        head_count=2,
        has_two_towers=True,
        head_width=8,
    )
    save_checkpoint(folder, JointModel(config).eval(), tokenizer, {})
    return folder


def test_a_bi_encoder_alone_is_measured_with_a_one_line_note(
    checkpoint: Path, tmp_path: Path
) -> None:
    """Without --rerank-k 0, which asks the same of a model that has a cross-encoder."""
    folder = two_towers(tmp_path / "towers")
    said = "there is no cross-encoder: only the bi-encoder is measured"

    status, output = run("--checkpoint", str(folder), "--report", str(tmp_path / "report"))
    asked, unranked = run("--checkpoint", str(checkpoint), "--rerank-k", "0")
    _, ranked = run("--checkpoint", str(checkpoint))  # positive control

    assert (status, asked) == (0, 0), output + unranked
    assert [each.count(said) for each in (output, unranked, ranked)] == [1, 0, 0]
    assert ["BE + CE" in each for each in (output, unranked, ranked)] == [False, False, True]
    assert rows(unranked, "BE  ") == rows(ranked, "BE  ")
    report = Report.read(tmp_path / "report" / "report.json")
    assert report.orders() == ["BE"]
    assert report.about["cross-encoder"] == "none"
    assert not {"match", "pair_count"} & set(report.seconds["text→image"])


def test_one_combined_of_two_does_as_the_two_do(tmp_path: Path) -> None:
    """What --retriever measures is what would be served."""
    records = [*scene_records("test", 1, 8), *scene_records("train", 2, 12)]
    captions = (caption.text for record in records for caption in record.captions)
    bi_encoder, cross_encoder = save_be_and_ce(tmp_path, texts=tuple(captions))
    folder = tmp_path / "combined"
    made = CliRunner().invoke(
        app,
        ["models", "combine", str(bi_encoder), str(cross_encoder), "--folder", str(folder)],
    )

    _, of_two = run(
        "--checkpoint", str(cross_encoder), "--retriever", str(bi_encoder), "--rerank-k", "4"
    )
    status, of_one = run("--checkpoint", str(folder), "--rerank-k", "4")

    assert made.exit_code == 0, made.output
    assert status == 0, of_one
    for order_by in ("BE  ", "BE + CE 4"):
        assert rows(of_one, order_by) == rows(of_two, order_by)
    _, of_the_ce = run("--checkpoint", str(cross_encoder), "--rerank-k", "4")
    assert rows(of_the_ce, "BE  ") != rows(of_one, "BE  ")  # positive control


def rows(output: str, order_by: str) -> list[str]:
    """Returns the numbers of both directions' rows of that order."""
    return [line.partition(order_by)[2].strip() for line in output.splitlines() if order_by in line]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--precision", "bf16"], "need --checkpoint"),
        (["--fusion-k", "20", "--retriever", "folder"], "--retriever, --fusion-k: these need"),
        (["--distractors", "scenes"], "not CORPUS:SPLIT:COUNT"),
        (["--checkpoint", "folder", "--query-count", "5"], "whole gallery"),
        (["--concurrency", "0"], "greater than or equal to 1"),
    ],
)
def test_conflicting_options_are_refused(arguments: list[str], says: str) -> None:
    status, output = run(*arguments)

    assert status == 2
    assert says in " ".join(output.replace("│", " ").split())


def test_a_report_is_a_file_a_page_and_a_plot(checkpoint: Path, tmp_path: Path) -> None:
    """The report has every order that was requested, and what made it."""
    arguments = [
        "--checkpoint",
        str(checkpoint),
        "--rerank-k",
        "4",
        "--fusion-k",
        "4",
        "--captions",
        "2",
    ]

    status, output = run(*arguments, "--report", str(tmp_path))

    assert status == 0, output
    report = Report.read(tmp_path / "report.json")
    assert report.orders()[:2] == ["BE", "BE + CE 4"]
    assert {"add 0.1", "norm_add 0.9"} <= set(report.orders())
    assert report.about["fusion"] == "over pools of 4"
    best = "best expected R@1: text→image 100.0, image→text 100.0"
    assert best in output
    assert f"- {best}" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert len(report.ranking("text→image", "BE").ranks) == 16  # two captions each of eight
    assert len(report.ranking("image→text", "BE").ranks) == 8
    assert "recall_against_time.png" in (tmp_path / "report.md").read_text(encoding="utf-8")
    with Image.open(tmp_path / "recall_against_time.png") as plot:
        assert plot.width > 500


def test_folds_are_smaller_galleries(checkpoint: Path, tmp_path: Path) -> None:
    run("--checkpoint", str(checkpoint), "--report", str(tmp_path / "whole"))
    status, output = run(
        "--checkpoint", str(checkpoint), "--folds", "2", "--report", str(tmp_path / "folds")
    )

    assert status == 0, output
    whole, halves = (Report.read(tmp_path / name / "report.json") for name in ("whole", "folds"))
    assert "mean of 2 folds" in halves.about["title"]
    assert (whole.fold_query_counts, set(halves.fold_query_counts)) == ({}, set(whole.languages))
    for each in halves.rankings:
        of_folds = [fold.recalls[0].percent for fold in halves.of_folds(each)]
        assert len(of_folds) == 2
        assert sum(of_folds) / 2 == each.recalls[0].percent
    page = (tmp_path / "folds" / "report.md").read_text(encoding="utf-8")
    assert "| direction | order by | 1 | 2 |" in page
    for one, two in zip(whole.rankings, halves.rankings, strict=True):
        assert len(one.ranks) == len(two.ranks) == 8
        assert sum(filter(None, one.ranks)) > sum(filter(None, two.ranks))


def test_distractors_push_answers_down(checkpoint: Path, tmp_path: Path) -> None:
    """The same queries in a larger collection find their answers no sooner."""
    asked = ("--checkpoint", str(checkpoint), "--language", "en")
    run(*asked, "--report", str(tmp_path / "alone"))
    status, output = run(
        *asked, "--distractors", "scenes:train:12", "--report", str(tmp_path / "among")
    )

    assert status == 0, output
    alone, among = (Report.read(tmp_path / name / "report.json") for name in ("alone", "among"))
    assert among.about["title"].endswith("12 distractors, fp32")
    assert alone.about["best expected R@1"] == "text→image 100.0, image→text 100.0"
    before, after = (each.ranking("text→image", "BE").ranks for each in (alone, among))
    assert all(a >= b for a, b in zip(after, before, strict=True))
    assert sum(after) > sum(before)  # type: ignore[arg-type]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Eight scenes on disk: a cut picture, an empty caption, a caption of 10,000 words, no file."""
    json_path = write_karpathy(scene_records("test", 1, 8), tmp_path / "damaged")
    document = json.loads(json_path.read_text(encoding="utf-8"))
    pictures = [json_path.parent / "images" / each["filename"] for each in document["images"]]
    pictures[1].write_bytes(pictures[1].read_bytes()[:100])
    document["images"][2]["sentences"][0]["raw"] = " "
    for sentence in document["images"][4]["sentences"]:  # whichever is asked with
        sentence["raw"] = "dog " * 10_000
    pictures[7].unlink()
    json_path.write_text(json.dumps(document), encoding="utf-8")
    return json_path


def test_a_record_that_cannot_be_read_stops_it_by_name(checkpoint: Path, damaged: Path) -> None:
    status, output = run(str(damaged), "--checkpoint", str(checkpoint))

    assert status == 1
    assert "record 'scenes-test-000000-1'" in output
    assert "000001.png" in output
    assert "picture not readable" in output
    assert "--on-error skip" in output


def test_records_that_cannot_be_read_are_left_out_and_counted(
    checkpoint: Path, damaged: Path, tmp_path: Path
) -> None:
    arguments = ["--checkpoint", str(checkpoint), "--on-error", "skip", "--report", str(tmp_path)]
    status, output = run(str(damaged), *arguments)

    assert status == 0, output
    report = Report.read(tmp_path / "report.json")
    assert len(report.ranking("image→text", "BE").ranks) == 4
    for told in (output, report.about["skipped"]):
        assert "skipped records: 4" in told
        for fault in ("not readable 1", "caption empty 1", "too long 1", "file not there 1"):
            assert fault in told


def test_one_picture_under_several_names_is_named(checkpoint: Path, tmp_path: Path) -> None:
    for number, colour in enumerate(("red", "red", "red", "blue")):
        Image.new("RGB", (40, 40), colour).save(tmp_path / f"{number}.png")
        (tmp_path / f"{number}.txt").write_text(f"{number + 2} dogs")
    asked = [f"folder:{tmp_path}", "--split", "all", "--checkpoint", str(checkpoint)]

    status, output = run(*asked, "--report", str(tmp_path / "report"))

    assert status == 0, output
    assert "3 pictures have the same file as another of their gallery" in " ".join(output.split())
    report = Report.read(tmp_path / "report" / "report.json")
    assert report.about["repeated pictures"] == "3"
    # A caption in common says as much, and the expected recall counts it.
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("two dogs")
    status, output = run(*asked)
    assert (status, "same file as another" in " ".join(output.split())) == (0, False)


def test_regions_replace_pictures_that_are_not_on_disk(tmp_path: Path) -> None:
    """Detectors' features are published without their photographs. What they lack is named."""
    records = list(scene_records("test", 1, 8))
    corpus = write_karpathy(records, tmp_path / "corpus")
    for picture in (corpus.parent / "images").iterdir():
        picture.unlink()
    regions = tmp_path / "regions.safetensors"
    made = {record.record_id: np.ones((2, 2054), np.float16) for record in records}
    write_regions(regions, made, region_count=2)
    tokenizer = tiny_tokenizer(tuple(each.text for record in records for each in record.captions))
    config = JointConfig(
        vocabulary_size=tokenizer.get_vocab_size(),
        width=16,
        layer_count=1,
        head_count=2,
        image_source="regions",
    )
    save_checkpoint(tmp_path / "ours", JointModel(config), tokenizer, {})
    arguments = [str(corpus), "--checkpoint", str(tmp_path / "ours"), "--regions", str(regions)]

    status, output = run(*arguments)

    assert status == 0, output
    del made[records[3].record_id]
    write_regions(regions, made, region_count=2)
    status, output = run(*arguments)
    assert status == 1
    assert f"record '{records[3].record_id}'" in output
    status, output = run(*arguments, "--on-error", "skip")
    assert status == 0, output
    assert "skipped records: 1 (no regions 1)" in output


def test_two_systems_side_by_side(checkpoint: Path, other: Path, tmp_path: Path) -> None:
    """tandem compare: each order both have, the second's difference from the first."""
    for name, folder in (("one", checkpoint), ("two", other)):
        run("--checkpoint", str(folder), "--report", str(tmp_path / name))

    systems = [f"{name}={tmp_path / name / 'report.json'}" for name in ("one", "two")]
    result = CliRunner().invoke(app, ["compare", *systems])

    assert result.exit_code == 0, result.output
    assert [result.output.count(each) for each in (" one ", " two ")] == [4, 4]
    # A name that comes again brings another seed of it, and replaces none.
    again = CliRunner().invoke(app, ["compare", *systems, *systems])
    assert again.exit_code == 0, again.output
    assert again.output.count("± 0.0") == 8
    assert CliRunner().invoke(app, ["compare", "report.json"]).exit_code == 2


def test_a_folder_that_takes_no_report_is_named_before_anything_is_measured(
    checkpoint: Path, tmp_path: Path
) -> None:
    """Otherwise the figures of a long run are lost. Neither /proc/self nor a file takes a file."""
    (tmp_path / "file").touch()
    for folder in ("/proc/self", str(tmp_path / "file"), str(tmp_path / "file" / "deeper")):
        status, output = run("--checkpoint", str(checkpoint), "--report", folder)

        assert status == 1
        assert f"{folder} cannot be written to (" in output
        assert "choose another --report" in output
        assert "encode the gallery" not in output
    assert "encode the gallery" in run("--checkpoint", str(checkpoint))[1]


def test_figures_are_kept_if_plotting_or_printing_fails(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--checkpoint", str(checkpoint)]
    (tmp_path / "drawn" / "recall_against_time.png").mkdir(parents=True)
    status, output = run(*arguments, "--report", str(tmp_path / "drawn"))
    assert status == 1
    assert "not drawn" in output
    assert "best expected R@1" in output
    assert Report.read(tmp_path / "drawn").rankings
    assert (tmp_path / "drawn" / "report.md").stat().st_size

    (tmp_path / "full" / "report.json").mkdir(parents=True)
    status, output = run(*arguments, "--report", str(tmp_path / "full"))
    assert status == 1
    assert "could not be written" in output
    assert "best expected R@1" in output

    monkeypatch.setattr("tandem.cli.evaluate.evaluate.print_report", lambda _: os.close(-1))
    status, output = run(*arguments, "--report", str(tmp_path / "unseen"))
    assert status == 1
    assert Report.read(tmp_path / "unseen").rankings
