"""Judged queries through real services: what is measured, and which models the gate refuses."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client, StoredItem
from tandem.contract.content import Modality
from tandem.contract.model_description import ProbabilityCalibration
from tandem.corpus.judged_queries import JudgedQuery, write_judged_queries
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.reports.report import Report
from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    calibration_file,
    calibration_in,
    write_calibrations,
)
from tandem.model_io.repository.precision import native_precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.joint_model import JointModel
from tandem.stack.stack import LocalStack, Ports

Damage = Callable[[JointModel], None]


def judged(records: Sequence[Record]) -> list[JudgedQuery]:
    """Returns every caption and every picture as a query, and one stored picture."""
    texts = [
        JudgedQuery(each.caption_id, each.text, Modality.IMAGE, {record.record_id: 2})
        for record in records
        for each in record.captions
    ]
    pictures = [
        JudgedQuery(f"as picture {each.record_id}", each.image, Modality.TEXT, grades)
        for each in records
        if (grades := {c.caption_id: 1 for c in each.captions if c.language == "en"})
    ]
    [stored] = pictures[:1]
    own = StoredItem(records[0].record_id)
    return [*texts, *pictures, replace(stored, query_id="as item", content=own)]


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    error = "" if isinstance(result.exception, SystemExit) else str(result.exception or "")
    return result.exit_code, result.output + error


@pytest.fixture(name="asked", scope="module")
def _asked(records: list[Record]) -> list[Record]:
    """Those of the index that are asked for, with nine captions each."""
    return records[:20]


@pytest.fixture(name="queries", scope="module")
def _queries(tmp_path_factory: pytest.TempPathFactory, asked: list[Record]) -> Path:
    folder = tmp_path_factory.mktemp("judged") / "queries"
    write_judged_queries(folder, judged(asked), {})
    return folder


def test_an_index_is_measured_as_it_stands(
    stack: LocalStack, scenes_index: str, queries: Path, asked: list[Record], tmp_path: Path
) -> None:
    """Its own report is a gate that it passes, and one of other queries is refused."""
    asking = ("--index", scenes_index, "--address", stack.address)
    command = ("evaluate", "--queries", str(queries), *asking)
    status, output = run(*command, "--report", str(tmp_path))

    assert status == 0, output
    report = Report.read(tmp_path)
    assert list(report.languages) == ["text→image", "image→text", "item→text"]
    final = report.ranking("text→image", "BE + CE 20")
    assert len(final.ranks) == sum(len(each.captions) for each in asked)
    assert final.recalls[0].percent > 50
    assert final.ndcg is not None
    assert final.served is not None
    assert final.served.empty_count == 0
    assert 0 < (final.served.calibration_error or 0.0) < 0.2
    assert (final.query_seconds or 1.0) <= (final.served.p95_seconds or 1.0)
    aucs = [each for each in final.served.pool_aucs if each is not None]
    assert sum(aucs) / len(aucs) > 0.9
    assert "ECE" in (tmp_path / "report.md").read_text()
    with Client(stack.address) as client:
        assert scenes_index in {each.index_id for each in client.list_indexes().indexes}

    status, output = run(*command, "--gate", str(tmp_path))
    assert (status, "gate: no worse than" in output) == (0, True), output

    fewer = tmp_path / "fewer.jsonl"
    line = {
        "query_id": "q",
        "text": "a dog",
        "target": "image",
        "relevant": [asked[0].record_id],
    }
    fewer.write_text(json.dumps(line))
    status, output = run(*command[:2], str(fewer), *asking, "--gate", str(tmp_path))
    assert status == 1
    assert "different queries" in output or "other pictures or captions" in output


def test_judged_items_that_the_index_lacks_are_named(
    stack: LocalStack, scenes_index: str, tmp_path: Path
) -> None:
    path = tmp_path / "queries.jsonl"
    line = {"query_id": "q", "text": "a dog", "target": "image", "relevant": ["gone", "gone 2"]}
    path.write_text(json.dumps(line))

    status, output = run(
        *("evaluate", "--queries", str(path), "--index", scenes_index, "--address", stack.address)
    )

    assert status == 1
    assert f"index {scenes_index} lacks 2 of 2 judged items ('gone', 'gone 2')" in output


def test_two_indexes_are_compared(
    stack: LocalStack, scenes_index: str, records: list[Record], tmp_path: Path
) -> None:
    """An equal one may replace the other; one with an item more may not."""
    twin = "scenes-twin"
    store(stack, twin, records)
    write_judged_queries(tmp_path / "queries", judged(records[:4]), {})
    command = ("index", "compare", scenes_index, twin, "--queries", str(tmp_path / "queries"))
    status, output = run(*command, "--address", stack.address)
    assert status == 0, output
    assert f"gate: {twin} may replace {scenes_index}" in output

    with Client(stack.address, timeout_seconds=30.0) as client:
        assert all(each.error is None for each in client.ingest([("x", "a dog")], index_id=twin))
    status, output = run(*command, "--address", stack.address, "--json")
    assert status == 3
    assert [each["reason"] for each in json.loads(output.splitlines()[-1])["refusals"]] == [
        "ITEM_COUNT_DIFFERS"
    ]


def noisy(model: JointModel) -> None:
    torch.manual_seed(0)
    for parameter in model.joint_encoder.parameters():
        if parameter.numel() > 1:
            parameter.add_(0.3 * parameter.std() * torch.randn_like(parameter))


def reversed_sign(model: JointModel) -> None:
    classifier = model.joint_encoder.classifier
    classifier.weight.copy_(classifier.weight.flip(0).clone())
    classifier.bias.copy_(classifier.bias.flip(0).clone())


def unchanged(_: JointModel) -> None:
    """Another export of the same model."""


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_bad_models_are_refused_as_they_serve(tmp_path: Path) -> None:
    """Each model has services, an index and a calibration of its own."""
    records = list(scene_records("test", 7, 120))
    write_judged_queries(tmp_path / "queries", judged(records)[:-1], {})
    measured = {
        name: served_status(tmp_path, name, damage, records, shift)
        for name, damage, shift in [
            ("first", unchanged, 0.0),
            ("equal", unchanged, 0.0),
            ("worse", noisy, 0.0),
            ("reversed", reversed_sign, 0.0),
            ("miscalibrated", unchanged, 4.0),
        ]
    }

    for name, (status, output) in measured.items():
        print(name, status, output, sep="\n")
    # A shared machine may be twice as slow by itself.
    reasons = {
        name: set(re.findall(r"refused: (\w+)", output)) - {"LATENCY_WORSE"}
        for name, (_, output) in measured.items()
    }
    assert reasons["first"] == reasons["equal"] == set()
    assert "RECALL_WORSE" in reasons["worse"]
    assert "CROSS_ENCODER_REVERSED" in reasons["reversed"]
    assert reasons["miscalibrated"] == {"CALIBRATION_WORSE"}
    assert [measured[name][0] for name in ("worse", "reversed", "miscalibrated")] == [3, 3, 3]


def served_status(
    folder: Path, name: str, damage: Damage, records: Sequence[Record], shift: float
) -> tuple[int, str]:
    """Returns the gate's exit status for a model; the first model's report is the gate's."""
    command = ["evaluate", "--queries", str(folder / "queries"), "--index", "scenes"]
    first = folder / "report"
    command += ["--gate", str(first)] if first.exists() else ["--report", str(first)]
    with served(folder / name, damage, shift) as stack:
        store(stack, "scenes", records)
        return run(*command, "--address", stack.address)


@contextmanager
def served(folder: Path, damage: Damage, shift: float) -> Iterator[LocalStack]:
    """Serves the shipped model after the damage, its probabilities moved by `shift` logits."""
    checkpoint = load_checkpoint(default_checkpoint())
    with torch.no_grad():
        damage(checkpoint.model)
    save_checkpoint(folder / "checkpoint", checkpoint.model, checkpoint.tokenizer, {})
    repository = folder / "model_repository"
    manifest = export_model(folder / "checkpoint", repository, native_precision())
    files = load_checkpoint(default_checkpoint()).files
    shipped = export_manifest(files, native_precision(), {}).fingerprint
    known = calibration_in(default_checkpoint() / CALIBRATION_NAME, shipped)
    assert known is not None
    assert known.probability is not None
    bias = known.probability.bias + shift
    moved = ProbabilityCalibration(known.probability.scale, bias)
    its = replace(known, fingerprint=manifest.fingerprint, probability=moved)
    write_calibrations(calibration_file(repository), [its])
    with LocalStack(folder / "data", repository, Ports.free(shard_count=1)) as stack:
        stack.start()
        yield stack


def store(stack: LocalStack, index_id: str, records: Sequence[Record]) -> None:
    items: list[tuple[str, str | bytes]] = []
    for record in records:
        items.append((record.record_id, record.image.read()))
        items += [(c.caption_id, c.text) for c in record.captions if c.language == "en"]
    with Client(stack.address, timeout_seconds=60.0) as client:
        assert all(each.error is None for each in client.ingest(items, index_id=index_id))
