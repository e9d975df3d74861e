"""Models of regions give the scores that their authors' own code computed once, at equal weights.

Shapes: B batch, T text tokens, R regions, D numbers of a region.
"""

import json
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tandem.contract.content import TruncationPolicy
from tandem.model_io.pictures.region_vectors import region_vectors
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.families.published_model import PublishedModel, RegionJointParts
from tandem.modeling.families.reader import read_published_model
from tests.support.modeling.authors_scores import (
    SCORES,
    authors_regions,
    authors_weights,
    write_authors_bert,
    write_authors_m3p,
)

IMAGE_FIELDS = {"img_feature_dim": 18, "img_feature_type": "frcnn"}


def joint_of(model: PublishedModel) -> RegionJointParts:
    assert model.region_joint is not None
    return model.region_joint


def texts_of(model: PublishedModel) -> list[Tensor]:
    """Returns ids [1, T] of each text, cut as a service cuts it."""
    rules = joint_of(model).text
    split = TextPreprocessor(model.tokenizers[rules.tokenizer], rules.max_tokens)
    cut = [split.windows(text, TruncationPolicy.TRUNCATE).windows[0] for text in SCORES["texts"]]
    return [torch.tensor([list(ids)]) for ids in cut]


def images_of(model: PublishedModel) -> list[Tensor]:
    """Returns float16 [1, R, D] of each image, cut as a service cuts it."""
    rules = joint_of(model).regions
    made = [authors_regions(**each, feature_width=rules.feature_width) for each in SCORES["images"]]
    return [torch.from_numpy(region_vectors(*each, rules))[None] for each in made]


@torch.inference_mode()
def outputs(model: PublishedModel, ids: Tensor, regions: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns embedding and match logit; the side that is absent is one masked position."""
    parts = joint_of(model)
    if regions is None:
        nothing = torch.zeros(1, 1, parts.regions.vector_width).half()
        return parts.joint(ids, torch.ones_like(ids), nothing, torch.zeros(1, 1).long())
    return parts.joint(ids, torch.ones_like(ids), regions, torch.ones(regions.shape[:2]).long())


def logits_of(model: PublishedModel) -> list[list[float]]:
    """Returns the logit of every text with every image."""
    images = images_of(model)
    return [
        [float(outputs(model, ids, regions)[1]) for regions in images] for ids in texts_of(model)
    ]


def oscar(folder: Path) -> Path:
    return write_authors_bert(folder, authors_weights("oscar"), **IMAGE_FIELDS)


def vinvl(folder: Path) -> Path:
    """As published: nothing but the norm of its image layer tells it from an OSCAR."""
    fields = IMAGE_FIELDS | {"use_img_layernorm": 1, "img_layer_norm_eps": 1e-12}
    return write_authors_bert(folder, authors_weights("oscar", "vinvl"), **fields)


def trained_with_50(folder: Path) -> Path:
    """As run_retrieval.py saves it, whose own default is 50 regions and a norm."""
    arguments = Namespace(
        max_img_seq_length=50, max_seq_length=70, add_od_labels=False, device=torch.device("cpu")
    )
    torch.save(arguments, vinvl(folder) / "training_args.bin")
    return folder


def uniter(folder: Path, left_out: str = "no weight") -> Path:
    weights = authors_weights("uniter")
    kept = {name: each for name, each in weights.items() if not name.startswith(left_out)}
    return write_authors_bert(folder, kept)


def m3p(folder: Path) -> Path:
    return write_authors_m3p(folder, authors_weights("m3p"))


def mmt(folder: Path, name: str, *, with_head: bool = True) -> Path:
    """Writes a folder as MMT-Retrieval does, with its head in a file of its own or without one."""
    kinds = [name, "ClassificationHead", "Pooling"] if with_head else [name, "Pooling"]
    paths = [f"{number}_{kind}" for number, kind in enumerate(kinds)]
    modules = [
        {"idx": number, "path": path, "type": f"mmt_retrieval.model.models.{kinds[number]}"}
        for number, path in enumerate(paths)
    ]
    for path in paths:
        (folder / path).mkdir(parents=True, exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    if name == "OSCAR":
        weights = authors_weights("oscar", without="bert.")
        kept = {n: each for n, each in weights.items() if not n.startswith("classifier")}
        write_authors_bert(folder / paths[0], kept, **IMAGE_FIELDS)
    else:
        left_out = SCORES["weights"]["m3p of mmt"]
        kept = {n: each for n, each in authors_weights("m3p").items() if n not in left_out}
        write_authors_m3p(folder / paths[0], kept)
    lengths = {"max_seq_length": 128, "max_image_seq_len": 50}
    (folder / paths[0] / "sentence_bert_config.json").write_text(json.dumps(lengths))
    (folder / paths[-1] / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    if with_head:
        torch.save(authors_weights("oscar of mmt"), folder / paths[1] / "class_head.pt")
        read = "cls_token_embeddings" if name == "OSCAR" else "pooled_cls_token_embeddings"
        fields = json.dumps({"num_labels": 2, "input_key": read})
        (folder / paths[1] / "sentence_bert_config.json").write_text(fields)
    return folder


def near(found: object, expected: object) -> None:
    """Fails unless both agree within float32's rounding; figures have six digits."""
    assert_close(torch.tensor(found), torch.tensor(expected), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("write", "case"),
    [
        (oscar, "oscar"),
        (vinvl, "vinvl"),
        (trained_with_50, "vinvl of 50"),
        (uniter, "uniter"),
        (partial(uniter, left_out="rank_output"), "uniter without ranking head"),
        (m3p, "m3p"),
        (partial(mmt, name="OSCAR"), "oscar of mmt"),
        (partial(mmt, name="M3P"), "m3p of mmt"),
    ],
    ids=lambda each: each if isinstance(each, str) else "of",
)
def test_pairs_have_the_authors_logits(
    tmp_path: Path, write: Callable[[Path], Path], case: str
) -> None:
    found = logits_of(read_published_model(write(tmp_path)))

    near(found, SCORES["cases"][case]["logits"])


@pytest.mark.parametrize("name", ["OSCAR", "M3P"])
def test_a_bi_encoder_of_mmt_has_its_embeddings_and_no_leftover_head(
    tmp_path: Path, name: str
) -> None:
    """M3P's own files have a head of pretraining, under which MMT trains the encoder."""
    model = read_published_model(mmt(tmp_path, name, with_head=False))

    case = SCORES["cases"][f"{name.lower()} of mmt"]
    near([outputs(model, ids, None)[0][0, :6].tolist() for ids in texts_of(model)], case["texts"])
    cls = torch.tensor([[joint_of(model).cls_id]])
    images = [outputs(model, cls, regions)[0][0, :6].tolist() for regions in images_of(model)]
    near(images, case["images"])
    assert not joint_of(model).has_pairs
    assert not any(any(row) for row in logits_of(model))
    assert not any("pretrained" in note for note in model.notes)


def test_tags_and_regions_that_an_oscar_does_not_read_are_noted(tmp_path: Path) -> None:
    """The authors' commands give tags to both, which moves every score."""
    published, trained = map(
        read_published_model, (vinvl(tmp_path / "a"), trained_with_50(tmp_path / "b"))
    )

    told = " ".join(published.notes)
    assert "the first 70 of a picture count" in told
    assert "object tags" in told
    assert not any("tags" in note or "count" in note for note in trained.notes)
    with_tags = torch.tensor(SCORES["cases"]["vinvl with tags"]["logits"])
    assert (with_tags - torch.tensor(logits_of(published))).abs().max() > 0.1
