"""`tandem train`: what it takes, what it refuses, and your own corpus from end to end."""

import json
import re
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.emoji import emoji_records
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.image_sources.region_tokens import write_regions
from tandem.modeling.image_sources.vision_tower import VisionTower
from tests.support.corpus.written_karpathy import write_karpathy
from tests.support.modeling.published_folders import published_bert
from tests.support.modeling.published_vision import published_vision
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint
from tests.support.training.published_starts import TINY, write_start


def run(*arguments: str) -> tuple[int, str, str]:
    """Returns the exit status, what was printed, and the error."""
    result = CliRunner().invoke(app, ["train", *arguments])
    return result.exit_code, result.output, str(result.exception or "")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["huge"], "no recipe 'huge'"),
        (["tiny", "--resume"], "to resume; drop --resume"),
        (["tiny", "--resume", "--overwrite"], "--overwrite replaces it; give one"),
        (["finetune"], "finetune needs --corpus"),
        (
            ["tiny", "--regions", "x"],
            "--regions would be ignored: recipe tiny",
        ),
        (["tiny", "--image-source", "regions"], "scenes have none; train on --corpus"),
        (["compact", "--corpus", "emoji", "--image-source", "grid"], "--image-source would be"),
        (
            ["half", "--corpus", "emoji", "--init", "SHIPPED"],
            "keeps all of its layers",
        ),
        (
            ["tiny", "--corpus", "emoji", "--init", "SHIPPED", "--from", "x"],
            "--from would be ignored: the checkpoint",
        ),
        (
            ["cross_encoder", "--corpus", "emoji", "--count", "600", "--drop-long-captions"],
            "only trains the CE; begin with",
        ),
        (["tiny", "--device", "tpu"], "no device 'tpu'"),
        (["tiny", "--corpus", "emoji", "--language", "xx"], "no caption is in xx; the corpus has"),
        (
            ["tiny", "--corpus", "emoji", "--rounds", "3", "--set", "round_count=2"],
            "--rounds and --set round_count fix the same field",
        ),
        (["tiny", "--set", "widht=8"], "no field 'widht'; did you mean width?"),
        (["tiny", "--precision", "int8"], "has precision 'int8': bf16 or fp32"),
        (["finetune", "--corpus", "emoji", "--init", "/nowhere"], "/nowhere is not a checkpoint"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    shipped = str(default_checkpoint())
    status, _, error = run(
        *(shipped if each == "SHIPPED" else each for each in arguments), "--folder", str(tmp_path)
    )

    assert status != 0
    assert why in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("model.safetensors", "holds a checkpoint: --overwrite"),
        ("run_state.pt", "holds an unfinished run: --resume continues it, --overwrite"),
    ],
)
def test_another_runs_files_are_not_overwritten(tmp_path: Path, file: str, says: str) -> None:
    """No hour of training may be lost because --folder is missing."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / file).write_bytes(b"an hour's work")

    status, _, error = run("tiny", "--folder", str(tmp_path))

    assert status != 0
    assert says in error
    assert (tmp_path / "tiny" / file).read_bytes() == b"an hour's work"


def test_a_folder_that_takes_no_file_is_refused_before_any_work() -> None:
    """Also where the system says to root that it may write."""
    status, output, error = run("tiny", "--folder", "/proc/checkpoints")

    assert status != 0
    assert "/proc/checkpoints/tiny cannot be written to (/proc: " in error
    assert output == ""


@pytest.mark.parametrize("recipe", [["finetune", "--corpus", "emoji"]])
def test_a_run_that_is_over_is_not_gone_on_with(tmp_path: Path, recipe: list[str]) -> None:
    """It would begin again and overwrite its result."""
    folder = tmp_path / recipe[0]
    folder.mkdir()
    (folder / "training.json").write_text('{"recipe": {"round_count": 2}}')
    (folder / "loss_curve.jsonl").write_text("{}\n{}\n")

    status, _, error = run(*recipe, "--resume", "--device", "cpu", "--folder", str(tmp_path))

    assert status != 0
    assert f"the run in {folder} is over" in error
    assert (folder / "loss_curve.jsonl").read_text() == "{}\n{}\n"


def test_a_corpus_of_ones_own_is_trained_on(tmp_path: Path) -> None:
    """A Karpathy file of two splits, and your own checkpoint; recalls before and after."""
    records = [*islice(emoji_records("train"), 0, 400, 5), *islice(emoji_records("val"), 40)]
    corpus = write_karpathy(records, tmp_path / "corpus")
    words = tuple(caption.text for each in records for caption in each.captions)
    save_tiny_checkpoint(tmp_path / "init", texts=words, image_size=48)

    status, printed, error = run(
        *("finetune", "--corpus", str(corpus), "--init", str(tmp_path / "init"), "--rounds", "2"),
        *("--device", "cpu", "--folder", str(tmp_path / "out"), "--drop-long-captions"),
        *("--precision", native_precision().value, "--language", "en"),
        *(
            "--set",
            "backbone_step_count=2",
            "--set",
            "margin=0.2",
            "--set",
            "softmax_round_count=1",
        ),
    )

    assert (status, error) == (0, "")
    assert "emulates bf16" not in printed
    assert re.search(r"[\d,]+ of [\d,]+ captions were too long", printed)
    assert "before: BE R@1" in printed.replace("\n", " ")
    folder = tmp_path / "out" / "finetune"
    training = json.loads((folder / "training.json").read_text())
    assert training["recipe"]["corpus"] == str(corpus)
    assert training["recipe"]["languages"] == "en"
    assert (training["recipe"]["margin"], training["recipe"]["softmax_round_count"]) == (0.2, 1)
    assert training["recipe"]["round_count"] == 2
    assert training["recipe"]["backbone_step_count"] == 2
    assert training["recipe"]["precision"] == native_precision().value
    seen = load_checkpoint(folder).trained_pictures
    assert seen is not None
    which = seen.which(sha256(each.image.read()).digest() for each in records)
    # The dev pictures at the end were not trained on. Some drawings are in two styles alike.
    assert all(each for each in which[:-40])
    assert not any(which[-40:])
    assert len((folder / "loss_curve.jsonl").read_text().splitlines()) == 2


def test_a_published_encoder_is_trained_on_regions_of_ones_own(tmp_path: Path) -> None:
    """As the papers' models are, by one command, and then measured; no picture is looked at.

    A record that the file lacks is named, or skipped and counted. On a CPU that emulates bf16 the
    command warns of it; the test is here because emulation is slow in convolutions, and none runs.
    """
    records = [*islice(emoji_records("train"), 0, 400, 5), *islice(emoji_records("val"), 40)]
    corpus = write_karpathy(records, tmp_path / "corpus")
    for picture in (tmp_path / "corpus" / "images").iterdir():
        picture.unlink()
    regions = tmp_path / "regions.safetensors"
    made = {each.record_id: np.ones((2, 2054), np.float16) for each in records[1:]}
    write_regions(regions, made, region_count=3)
    published_bert(tmp_path / "published")
    arguments = ["tiny", "--corpus", str(corpus), "--regions", str(regions), "--rounds", "2"]
    arguments += ["--from", str(tmp_path / "published"), "--folder", str(tmp_path / "out")]

    status, _, error = run(*arguments)
    assert status == 1
    assert f"{records[0].record_id!r}" in error
    assert "no regions" in error

    status, printed, error = run(*arguments, "--on-error", "skip", "--precision", "bf16")
    assert (status, error) == (0, "")
    assert ("emulates bf16" in printed) == (native_precision() is not Precision.BF16)
    assert "skipped records: 1 (no regions 1)" in " ".join(printed.split())
    trained = load_checkpoint(tmp_path / "out" / "tiny")
    config = trained.model.config
    assert (config.encoder, config.image_source) == ("post_norm", "regions")
    assert trained.training["recipe"]["corpus"] == str(corpus)
    assert trained.training["recipe"]["precision"] == "bf16"
    assert trained.training["skipped_records"] == {"no regions": 1}
    question = [
        "evaluate",
        str(corpus),
        "--split",
        "val",
        "--rerank-k",
        "5",
        "--regions",
        str(regions),
    ]
    trained_folder = str(tmp_path / "out" / "tiny")
    measured = CliRunner().invoke(app, [*question, "--checkpoint", trained_folder])
    assert measured.exit_code == 0, measured.output


# The page's command over ./vit lets it learn first, too (test_training_docs).
@pytest.mark.parametrize("backbone_steps", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_two_towers_are_trained_over_a_network_of_others(
    tmp_path: Path, backbone_steps: str
) -> None:
    published_bert(tmp_path / "bert")
    published_vision(tmp_path / "vit", "vit")
    records = [*islice(emoji_records("train"), 0, 400, 5)]
    corpus = write_karpathy(records, tmp_path / "corpus")
    arguments = ["photographs", "--corpus", str(corpus), "--from", str(tmp_path / "bert")]
    arguments += ["--image-source", str(tmp_path / "vit"), "--language", "en", "--rounds", "4"]
    for setting in ("be_batch_size=8", "held_out_family_count=10", "matcher_batch_size=6"):
        arguments += ["--set", setting]
    views = "2" if backbone_steps == "0" else "1"
    arguments += ["--set", f"view_count={views}", "--set", "backbone_batch_size=8"]
    arguments += ["--precision", "fp32", "--folder", str(tmp_path / "out")]

    status, printed, error = run(
        *arguments, "--set", f"backbone_step_count={backbone_steps}", "--drop-long-captions"
    )

    assert (status, error) == (0, "")
    assert "CE R@1" in printed
    trained = load_checkpoint(tmp_path / "out" / "photographs")
    assert isinstance(trained.model.image_backbone, VisionTower)
    assert trained.model.config.vision_token_count == 17
    kept = [*(tmp_path / "out" / "features").glob("vision_tower-*/tokens.f16")]
    assert len(kept) == (1 if backbone_steps == "0" else 0)
    if kept:
        # Every view of the train pictures, and the held-out pictures.
        train_count = len(records) - 10
        assert kept[0].stat().st_size == (2 * train_count + 10) * 17 * 24 * 2
    measured = CliRunner().invoke(
        app,
        [
            *("evaluate", str(corpus), "--split", "train", "--rerank-k", "5", "--count", "12"),
            "--allow-trained",
            *("--checkpoint", str(tmp_path / "out" / "photographs"), "--language", "en"),
        ],
    )
    assert measured.exit_code == 0, measured.output
    if kept:
        _train_another_matcher(tmp_path, corpus)


def _train_another_matcher(folder: Path, corpus: Path) -> None:
    """Trains a matcher that shares the towers' lower parts, and measures it."""
    arguments = ["joint_matcher", "--corpus", str(corpus), "--language", "en"]
    for setting in ("matcher_layer_count=1", "matcher_step_count=2", "view_count=2"):
        arguments += ["--set", setting]
    for setting in ("held_out_family_count=10", "matcher_batch_size=6"):
        arguments += ["--set", setting]

    status, printed, error = run(
        *(*arguments, "--init", str(folder / "out" / "photographs"), "--drop-long-captions"),
        *("--precision", "fp32", "--folder", str(folder / "out")),
    )

    assert (status, error) == (0, "")
    assert "CE R@1" in printed
    assert "losses and recalls" not in printed
    trained = load_checkpoint(folder / "out" / "joint_matcher").model
    assert trained.config.matcher_layer_count == 1


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_record_that_cannot_be_read_stops_it_or_is_counted(tmp_path: Path, on_error: str) -> None:
    """A cut picture and a picture without its file, by name; what is left is trained on."""
    records = [*islice(emoji_records("train"), 0, 400, 5), *islice(emoji_records("val"), 40)]
    corpus = write_karpathy(records, tmp_path / "corpus")
    words = tuple(caption.text for each in records for caption in each.captions)
    save_tiny_checkpoint(tmp_path / "init", texts=words, image_size=48)
    pictures = sorted((tmp_path / "corpus" / "images").iterdir())
    pictures[3].write_bytes(pictures[3].read_bytes()[:60])
    pictures[60].unlink()
    if on_error == "skip":
        document = json.loads(corpus.read_text())
        document["images"].insert(7, {"filename": "of no split.jpg"})
        corpus.write_text(json.dumps(document))

    status, printed, error = run(
        *("finetune", "--corpus", str(corpus), "--init", str(tmp_path / "init"), "--rounds", "1"),
        *("--folder", str(tmp_path / "out"), "--drop-long-captions", "--on-error", on_error),
    )

    if on_error == "stop":
        assert status == 1
        assert records[3].record_id in error
        assert "000003.webp" in error
    else:
        assert (status, error) == (0, "")
        told = " ".join(printed.split())
        assert "emulates bf16" not in told
        assert "skipped records: 3" in told
        assert "picture not readable 1" in told
        assert "picture file not there 1" in told
        training = json.loads((tmp_path / "out" / "finetune" / "training.json").read_text())
        assert training["recipe"]["precision"] == native_precision().value
        assert "images[7] has no str 'split'" in told
        expected = {
            "not as its layout allows": 1,
            "picture not readable": 1,
            "picture file not there": 1,
        }
        assert training["skipped_records"] == expected


def test_a_published_model_trains_as_it_is(tmp_path: Path) -> None:
    """The folder that it writes is one of its family; nothing is trained or replaced twice."""
    begin = write_start("clip", tmp_path / "clip", ["two cats"], TINY)
    options = ["--from", str(begin), "--corpus", "emoji", "--count", "100", "--rounds", "2"]
    sizes = [f"--set={name}=4" for name in ("be_batch_size", "ce_family_count", "dev_family_count")]
    options += [*sizes, "--set", "mode=be", "--folder", str(tmp_path), "--language", "en"]

    status, output, error = run("cooperative", *options)

    assert status == 0, (output, error)
    assert "logit_scale" in output
    folder = tmp_path / "cooperative"
    assert f"next: tandem models add {folder}" in " ".join(output.split())
    assert read_published_model(folder).family == "clip"
    assert "--overwrite replaces it" in run("cooperative", *options)[2]
    assert "is over, so there is nothing to resume" in run("cooperative", *options, "--resume")[2]

    begin = write_start("vilt", tmp_path / "vilt", ["two cats"], TINY)
    alone = ["--from", str(begin), "--set", "mode=ce", "--folder", str(tmp_path / "ce")]
    begin_at = options.index("--set")
    status, output, error = run(
        "cooperative", *options[:begin_at], *options[begin_at + 2 :], *alone
    )

    assert status == 0, (output, error)
    served = f"next: tandem models add BE --cross-encoder {tmp_path / 'ce' / 'cooperative'};"
    assert served in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "begins with a published model: name its --from"),
        (["--from", "BERT"], 'config.json has model_type "bert", which is not a supported'),
        (["--from", "CLIP"], "clip has no head for pairs, so it is a BE alone: --set mode=be"),
        (["--from", "VILT"], "vilt embeds nothing, so it is a CE alone: --set mode=ce"),
        (["--from", "VISUAL_BERT"], "features of a detector; give them with --regions"),
        (
            ["--from", "CLIP", "--set", "mode=be", "--regions", "CLIP"],
            "would be ignored: the model reads pixels",
        ),
        (["--from", "CLIP", "--init", "x"], "--init would be ignored: the published model fixes"),
        (["--from", "CLIP", "--seeds", "2"], "--seeds measures no published folder"),
        (
            ["--from", "CLIP", "--set", "mlm_steps_per_round=1"],
            "leave mlm_steps_per_round out",
        ),
    ],
)
def test_what_a_published_model_cannot_do_is_named(
    tmp_path: Path, arguments: list[str], why: str
) -> None:
    starts = {each for each in arguments if each.isupper()}
    for each in starts:
        if each == "BERT":
            published_bert(tmp_path / each)
        else:
            write_start(each.lower(), tmp_path / each, ["two cats"], TINY)
    named = [str(tmp_path / each) if each in starts else each for each in arguments]

    status, _, error = run("cooperative", *named, "--folder", str(tmp_path / "out"))

    assert status != 0
    assert why in error
    assert not (tmp_path / "out" / "cooperative").exists()
