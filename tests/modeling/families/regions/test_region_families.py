"""OSCAR, UNITER and M3P from folders as their authors publish them.

Shapes: B batch, T text tokens, R regions, D numbers of a region, W width.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tandem.model_io.pictures.image_rules import BoxNumbers
from tandem.model_io.repository.manifest import JOINT_ENCODER, read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.published_export import export_published
from tandem.modeling.families.published_model import PublishedModel, RegionJointParts
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.families.regions.m3p import read_m3p
from tandem.modeling.families.regions.mmt_folder import is_mmt_folder, read_mmt_folder
from tandem.modeling.families.regions.oscar import read_oscar
from tandem.modeling.families.regions.uniter import read_uniter
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tandem.modeling.published.folder import PublishedFolder
from tests.support.modeling.published_pairs import change_json
from tests.support.modeling.region_checkpoints import (
    BERT_FIELDS,
    FEATURE_WIDTH,
    WIDTH,
    Random,
    Weights,
    linear,
    m3p_weights,
    oscar_weights,
    uniter_weights,
    write_m3p,
    write_oscar,
    write_uniter,
)

TEXT = [2, 7, 5, 3]


@dataclass(frozen=True)
class Family:
    """What differs between the three."""

    name: str
    weights: Callable[[], Weights]
    write: Callable[[Path, Weights], Path]
    read: Callable[[PublishedFolder], PublishedModel]
    box_numbers: BoxNumbers
    pooler: str
    cls_id: int
    missing: str
    """A weight that must be there."""

    def opened(self, folder: Path, weights: Weights) -> PublishedModel:
        """Writes the weights and reads the folder."""
        return self.read(PublishedFolder(self.write(folder, weights)))

    def regions(self, *counts: int) -> tuple[Tensor, Tensor]:
        """Returns float16 [B, R, D] of random regions with its mask; padding is not zero."""
        width = FEATURE_WIDTH + self.box_numbers.width
        generator = torch.Generator().manual_seed(3)
        regions = torch.rand(len(counts), max(counts), width, generator=generator)
        numbers = torch.arange(max(counts))[None]
        return regions.half(), (numbers < torch.tensor(counts)[:, None]).long()


OSCAR = Family(
    "oscar",
    oscar_weights,
    write_oscar,
    read_oscar,
    BoxNumbers.CORNERS_SIDES,
    "bert.pooler.dense",
    2,
    "bert.img_embedding.bias",
)
UNITER = Family(
    "uniter",
    uniter_weights,
    write_uniter,
    read_uniter,
    BoxNumbers.CORNERS_SIDES_AREA,
    "uniter.pooler.dense",
    2,
    "uniter.img_embeddings.pos_linear.weight",
)
M3P = Family(
    "m3p",
    m3p_weights,
    write_m3p,
    read_m3p,
    BoxNumbers.CORNERS_AREA,
    "pooled_layer.dense",
    0,
    "layer_norm2.1.bias",
)
FAMILIES = pytest.mark.parametrize("family", [OSCAR, UNITER, M3P], ids=lambda each: each.name)


def joint_of(model: PublishedModel) -> RegionJointParts:
    """Returns the parts of a region model."""
    assert model.region_joint is not None
    return model.region_joint


def padded(*texts: list[int]) -> tuple[Tensor, Tensor]:
    """Returns ids [B, T], padded with 1, and their mask."""
    length = max(map(len, texts))
    ids = torch.tensor([[*text, *[1] * (length - len(text))] for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (length - len(text)) for text in texts])
    return ids, mask


def assert_near(found: Tensor, expected: Tensor) -> None:
    """Fails unless both agree within float32's rounding over two layers."""
    assert_close(found, expected, atol=2e-5, rtol=1e-4)


@FAMILIES
@torch.inference_mode()
def test_a_row_is_the_same_alone_and_padded(tmp_path: Path, family: Family) -> None:
    """Pairs, texts and images; what the numbers are, the authors' own scores hold."""
    joint = joint_of(family.opened(tmp_path, family.weights())).joint
    texts, counts = [TEXT, [2, 9, 3]], (3, 5)
    regions, region_mask = family.regions(*counts)
    nothing = torch.zeros_like(regions[:, :1]), torch.zeros(2, 1, dtype=torch.int64)
    cls = padded([family.cls_id], [family.cls_id])

    pairs = joint(*padded(*texts), regions, region_mask)[1]
    of_texts, of_images = joint(*padded(*texts), *nothing)[0], joint(*cls, regions, region_mask)[0]

    for row, (text, count) in enumerate(zip(texts, counts, strict=True)):
        own = regions[row : row + 1, :count], torch.ones(1, count, dtype=torch.int64)
        one_cls = padded([family.cls_id])
        assert_near(pairs[row], joint(*padded(text), *own)[1][0])
        assert_near(of_texts[row], joint(*padded(text), *(each[:1] for each in nothing))[0][0])
        assert_near(of_images[row], joint(*one_cls, *own)[0][0])
    for rows in (pairs, of_texts, of_images):
        assert (rows[0] - rows[1]).abs().max() > 1e-3  # so that the rows could be mistaken


@torch.inference_mode()
def test_oscars_texts_are_berts(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    weights = oscar_weights()
    bert = BertModel(BertConfig.from_dict(dict(BERT_FIELDS))).eval()
    own = {name.removeprefix("bert."): each for name, each in weights.items()}
    bert.load_state_dict({name: own[name] for name in bert.state_dict()})
    encoder = joint_of(OSCAR.opened(tmp_path, weights)).joint
    ids, mask = padded(TEXT, [2, 3])
    nothing = torch.zeros(2, 1, FEATURE_WIDTH + 6), torch.zeros(2, 1, dtype=torch.int64)

    hidden, _ = encoder.hidden_states(ids, mask, *nothing)

    expected = bert(input_ids=ids, attention_mask=mask).last_hidden_state
    assert_near(hidden[:, :4][mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize(
    ("family", "precision", "with_pt2"),
    [
        (OSCAR, Precision.FP32, True),
        (UNITER, Precision.BF16, False),
        (M3P, Precision.FP32, False),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_an_export_is_one_triton_model(
    tmp_path: Path, family: Family, precision: Precision, with_pt2: bool
) -> None:
    model = family.opened(tmp_path / "published", family.weights())

    manifest = export_published(model, tmp_path / "repository", precision, with_pt2=with_pt2)

    assert read_manifest(tmp_path / "repository") == manifest
    assert manifest.models.keys() == {JOINT_ENCODER}
    assert manifest.regions == joint_of(model).regions
    manifest.verify(tmp_path / "repository")


@FAMILIES
def test_rules_are_the_papers(tmp_path: Path, family: Family) -> None:
    model = read_published_model(family.write(tmp_path, family.weights()))
    parts = joint_of(model)

    assert model.family == family.name  # found by its files: no configuration names it
    assert parts.regions.box_numbers is family.box_numbers
    assert parts.regions.feature_width == FEATURE_WIDTH
    assert parts.regions.max_regions == (50 if family is OSCAR else 100)
    # The authors cut no text of a test set: OSCAR's alone are cut, to 70.
    assert parts.text.max_tokens == {"oscar": 70, "uniter": 80, "m3p": 514 - 100}[family.name]
    assert (96 in parts.text.lengths) == (family is M3P)
    assert parts.text.pad_id == (1 if family is M3P else 0)
    assert (parts.cls_id, parts.embedding_dim) == (family.cls_id, WIDTH)
    assert parts.has_pairs
    assert not model.tokenizers["tokenizer.json"].padding
    assert len(model.files_sha256) >= 2


@FAMILIES
def test_weights_that_do_not_fit_are_named(tmp_path: Path, family: Family) -> None:
    """The authors' loaders would leave a missing one at random, and pass an unused one over."""
    weights = family.weights()
    name = f"{family.pooler}.weight"
    missing = family.missing.partition("bert.")[2] or family.missing.removeprefix("uniter.")
    faults = {
        f"missing {missing}": {n: w for n, w in weights.items() if n != family.missing},
        "unexpected vision_tower.proj": weights | {"vision_tower.proj.weight": torch.zeros(2, 2)},
        r"of another shape .*instead of \[128, 1": weights | {name: torch.zeros(3, WIDTH)},
        "NaN or infinite": weights | {name: weights[name] * float("nan")},
    }
    for number, (message, odd) in enumerate(faults.items()):
        with pytest.raises(PublishedCheckpointInvalid, match=message):
            family.opened(tmp_path / str(number), odd)


@FAMILIES
@torch.inference_mode()
def test_without_a_head_there_is_a_bi_encoder(tmp_path: Path, family: Family) -> None:
    heads = ("classifier", "itm_output", "rank_output", "seq_relationship")
    weights = {n: w for n, w in family.weights().items() if not n.startswith(heads)}

    model = family.opened(tmp_path, weights)

    parts = joint_of(model)
    assert not parts.has_pairs
    assert any("no head for pairs" in note for note in model.notes)
    _, logits = parts.joint(*padded(TEXT), *family.regions(2))
    assert logits.tolist() == [[0.0]]


@torch.inference_mode()
def test_old_names_of_norms_are_read(tmp_path: Path) -> None:
    old = joint_of(OSCAR.opened(tmp_path / "old", oscar_weights(ends=("gamma", "beta")))).joint
    new = joint_of(OSCAR.opened(tmp_path / "new", oscar_weights())).joint

    inputs = (*padded(TEXT), *OSCAR.regions(2))
    assert torch.equal(old(*inputs)[1], new(*inputs)[1])


@torch.inference_mode()
def test_a_head_may_have_two_layers(tmp_path: Path) -> None:
    random, weights = Random(5), oscar_weights()
    weights = {n: w for n, w in weights.items() if not n.startswith("classifier")}
    weights |= random.linear("classifier.0", WIDTH, 2 * WIDTH)
    weights |= random.linear("classifier.2", 2 * WIDTH, 2)
    joint = joint_of(OSCAR.opened(tmp_path, weights)).joint
    inputs = (*padded(TEXT), *OSCAR.regions(3))

    _, logits = joint(*inputs)

    own = {name.removeprefix("bert."): each for name, each in weights.items()}
    hidden = joint.hidden_states(*inputs)[0]
    inner = linear(own, "classifier.0", torch.tanh(linear(own, "pooler.dense", hidden[:, 0])))
    scores = linear(own, "classifier.2", inner.relu())
    assert_near(logits, scores[:, 1:] - scores[:, :1])


def test_weights_of_another_family_are_refused(tmp_path: Path) -> None:
    weights = oscar_weights()
    odd_fields: list[tuple[dict[str, object], str]] = [
        ({"img_feature_type": "dis_code"}, "img_feature_type is .dis_code"),
        ({"hidden_act": "relu"}, "hidden_act is .relu"),
    ]
    for fields, message in odd_fields:
        with pytest.raises(PublishedCheckpointInvalid, match=message):
            read_oscar(PublishedFolder(write_oscar(tmp_path / "oscar", weights, **fields)))
    uniter = write_uniter(tmp_path / "uniter", uniter_weights())
    (uniter / "tokenizer_config.json").unlink()
    with pytest.raises(PublishedCheckpointInvalid, match="has upper-case letters"):
        read_uniter(PublishedFolder(uniter))
    with pytest.raises(PublishedCheckpointInvalid, match="not an M3P file"):
        M3P.opened(tmp_path / "m3p", weights)
    with pytest.raises(PublishedCheckpointInvalid, match="classifier gives 3 numbers"):
        OSCAR.opened(tmp_path / "three", weights | Random(0).linear("classifier", WIDTH, 3))


def test_an_m3p_may_have_another_name_and_no_wrapper(tmp_path: Path) -> None:
    weights = m3p_weights()
    folder = write_m3p(tmp_path / "m3p", weights)
    (folder / "m3p_under_weights.pth").unlink()
    torch.save(weights, folder / "best.pth")
    model = read_published_model(folder)
    assert model.family == "m3p"
    torch.save(weights, folder / "last.pth")
    with pytest.raises(PublishedCheckpointInvalid):
        read_published_model(folder)


def test_an_oscar_behind_a_wrapper_is_read(tmp_path: Path) -> None:
    weights = oscar_weights()
    stored = {f"module.{name}": each for name, each in weights.items()}
    folder = write_oscar(tmp_path / "wrapped", {})
    torch.save({"model": stored, "step": 3}, folder / "pytorch_model.bin")
    regions, region_mask = OSCAR.regions(3)
    made, expected = (
        joint_of(model).joint(*padded(TEXT), regions, region_mask)[1]
        for model in (read_published_model(folder), OSCAR.opened(tmp_path / "plain", weights))
    )
    assert_near(made, expected)


def mmt_folder(folder: Path, encoder: str, head: Weights, input_key: str) -> Path:
    """Writes modules.json with the head's and the pooling's folders."""
    names = (f"0_{encoder}", "1_ClassificationHead", "2_Pooling")
    modules = [
        {"idx": number, "name": str(number), "path": name,
         "type": f"mmt_retrieval.model.models.{name[2:]}"}
        for number, name in enumerate(names)
    ]  # fmt: skip
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    torch.save(head, folder / names[1] / "class_head.pt")
    lengths = {"max_seq_length": 40, "max_image_seq_len": 20}
    (folder / names[0] / "sentence_bert_config.json").write_text(json.dumps(lengths))
    fields = {"num_labels": 2, "input_key": input_key, "classifier_type": "linear"}
    (folder / names[1] / "sentence_bert_config.json").write_text(json.dumps(fields))
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / names[2] / "config.json").write_text(json.dumps(pooling))
    return folder


def test_a_folder_of_mmt_has_its_own_lengths_and_no_leftover_head(tmp_path: Path) -> None:
    """A second head, in the encoder's file, is left over from before: MMT reads none there."""
    weights, head = oscar_weights(), Random(7).linear("classifier", WIDTH, 2)
    folder = mmt_folder(tmp_path, "OSCAR", head, "cls_token_embeddings")
    write_oscar(folder / "0_OSCAR", weights | Random(8).linear("classifier", WIDTH, 2))

    model = read_published_model(folder)

    parts = joint_of(model)
    assert (model.family, parts.text.max_tokens, parts.regions.max_regions) == ("oscar", 42, 20)
    assert torch.equal(
        parts.joint.state_dict()["head.classifier.weight"], head["classifier.weight"]
    )


@pytest.mark.parametrize(
    ("family", "lengths", "tokens"),
    [(OSCAR, (510, 50), 80), (M3P, (510, 100), 414), (M3P, (510, 600), 0)],
    ids=["oscar-510", "m3p-510", "m3p-none"],
)
def test_a_limit_of_mmt_is_cut_to_the_texts_positions(
    tmp_path: Path, family: Family, lengths: tuple[int, int], tokens: int
) -> None:
    """Regions have positions in M3P alone: in an OSCAR they take none from its texts."""
    name, head = family.name.upper(), Random(7).linear("classifier", WIDTH, 2)
    folder = mmt_folder(tmp_path, name, head, "cls_token_embeddings")
    weights = {n: w for n, w in family.weights().items() if not n.startswith("classifier")}
    family.write(folder / f"0_{name}", weights)
    limits = dict(zip(("max_seq_length", "max_image_seq_len"), lengths, strict=True))
    change_json(folder / f"0_{name}/sentence_bert_config.json", **limits)

    if not tokens:
        with pytest.raises(PublishedCheckpointInvalid, match="none for a text next to 600 regions"):
            read_mmt_folder(PublishedFolder(folder))
        return
    parts = joint_of(read_mmt_folder(PublishedFolder(folder)))
    assert (parts.text.max_tokens, parts.regions.max_regions) == (tokens, lengths[1])


def test_other_folders_of_mmt_are_named(tmp_path: Path) -> None:
    head = Random(7).linear("classifier", WIDTH, 2)
    folder = mmt_folder(tmp_path, "OSCAR", head, "all_layer_embeddings")
    write_oscar(folder / "0_OSCAR", oscar_weights())
    pooling = folder / "2_Pooling" / "config.json"

    with pytest.raises(PublishedCheckpointInvalid, match='input_key is "all_layer_embeddings"'):
        read_mmt_folder(PublishedFolder(folder))
    mmt_folder(tmp_path, "OSCAR", head, "cls_token_embeddings")
    pooling.write_text('{"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true}')
    with pytest.raises(PublishedCheckpointInvalid, match="pooling_mode_max_tokens is true"):
        read_mmt_folder(PublishedFolder(folder))
    for modules, message in [
        ('[{"type": "a.OSCAR", "path": "../x"}]', "no folder inside it"),
        ('[{"type": "a.OSCAR", "path": "x"}, {"type": "a.Dense", "path": "y"}]', "Dense"),
        ("[[", "is not a list of modules"),
    ]:
        (folder / "modules.json").write_text(modules)
        with pytest.raises(PublishedCheckpointInvalid, match=message):
            read_mmt_folder(PublishedFolder(folder))
    (folder / "modules.json").write_text(
        '[{"type": "sentence_transformers.models.CLIPModel", "path": ""}]'
    )
    assert not is_mmt_folder(PublishedFolder(folder))
