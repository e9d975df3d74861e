"""Published folders become models of their family, or are refused with what can be done."""

import json
import shutil
import string
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tandem.model_io.pictures.image_rules import Filter, Fit, Transparency
from tandem.modeling.families.published_model import BiEncoderParts
from tandem.modeling.families.reader import (
    is_published_folder,
    read_published_model,
)
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.licence import licence_notes
from tests.support.modeling.odd_contents import odd_texts
from tests.support.modeling.published_pairs import SIZE, change_json, write_card, write_json

Published = Callable[[str], Path]

IDS = torch.tensor([[518, 513, 516, 519]])


@pytest.fixture
def clip(published: Published, tmp_path: Path) -> Path:
    """A CLIP's folder that a test may change."""
    folder = tmp_path / "clip"
    shutil.copytree(published("clip"), folder)
    return folder


def _parts(folder: Path) -> BiEncoderParts:
    parts = read_published_model(folder).bi_encoder
    assert parts is not None
    return parts


@pytest.mark.parametrize(
    ("name", "family", "architecture", "licence", "dim"),
    [
        ("clip", "clip", "CLIPModel", "mit", 24),
        ("metaclip_2", "metaclip_2", "MetaClip2Model", "cc-by-nc-4.0", 24),
        ("siglip", "siglip", "SiglipModel", "apache-2.0", 32),
        ("siglip 2", "siglip", "SiglipModel", "apache-2.0", 32),
    ],
)
def test_a_folder_becomes_a_model_of_its_family(
    published: Published, name: str, family: str, architecture: str, licence: str, dim: int
) -> None:
    model = read_published_model(published(name))
    assert (model.family, model.architecture, model.licence) == (family, architecture, licence)
    assert model.cross_encoder is None
    assert model.bi_encoder is not None
    assert model.bi_encoder.embedding_dim == dim
    assert set(model.files_sha256) == {
        "config.json",
        "model.safetensors",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_the_rules_are_those_of_the_files(published: Published) -> None:
    clip, siglip, second = map(_parts, map(published, ("clip", "siglip", "siglip 2")))
    assert (clip.image.size, clip.image.fit, clip.image.filter) == (SIZE, Fit.CROP, Filter.BICUBIC)
    assert clip.image.is_exact
    assert clip.image.transparency is Transparency.WHITE
    assert (siglip.image.fit, siglip.image.filter) == (Fit.SQUASH, Filter.BICUBIC)
    assert (second.image.fit, second.image.filter) == (Fit.SQUASH, Filter.BILINEAR)
    assert (clip.text.max_tokens, clip.text.lengths[-1]) == (77, 77)
    assert len(clip.text.lengths) > 1
    assert clip.text.pad_id == 519  # the end token's
    for parts, pad_id in ((siglip, 1), (second, 0)):
        assert parts.text.lengths == (64,)
        assert parts.text.reads_padding
        assert parts.text.pad_id == pad_id


def test_a_crop_names_the_shorter_side_before_it(clip: Path) -> None:
    change_json(clip / "preprocessor_config.json", size={"shortest_edge": 224})
    assert _parts(clip).image.resize_to == 224


def test_one_file_for_all_processors_is_read_first(clip: Path) -> None:
    fields = json.loads((clip / "preprocessor_config.json").read_text())
    fields["resample"] = 2
    write_json(clip / "processor_config.json", {"image_processor": fields})
    assert _parts(clip).image.filter is Filter.BILINEAR
    (clip / "preprocessor_config.json").unlink()
    assert _parts(clip).image.filter is Filter.BILINEAR


def test_counters_that_older_files_store_are_left_out(clip: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(clip / "model.safetensors")
    weights["text_model.embeddings.position_ids"] = torch.arange(77)[None]
    save_file(weights, clip / "model.safetensors")
    read_published_model(clip)


def test_pickled_weights_are_read_without_running_them(clip: Path) -> None:
    from safetensors.torch import load_file

    before = _parts(clip).embed_text(torch.tensor([[518, 513, 519]]), torch.ones(1, 3).long())
    torch.save(load_file(clip / "model.safetensors"), clip / "pytorch_model.bin")
    (clip / "model.safetensors").unlink()
    after = _parts(clip).embed_text(torch.tensor([[518, 513, 519]]), torch.ones(1, 3).long())
    torch.testing.assert_close(before, after)
    torch.save({"weight": Path}, clip / "pytorch_model.bin")
    with pytest.raises(PublishedCheckpointInvalid, match="would run code"):
        read_published_model(clip)


def test_a_licence_is_shown_with_a_warning(clip: Path) -> None:
    for licence, note in {
        "mit": None,
        "cc-by-nc-4.0": "does not allow commercial use",
        "other\nlicense_name: apple-amlr": "apple-amlr, does not allow commercial use",
        "other": "its publisher's own",
        "\n- mit\n  - cc-by-nc-4.0  # weights": "mit and cc-by-nc-4.0, does not allow",
        "[mit, 'cc-by-nc-4.0']": "mit and cc-by-nc-4.0, does not allow",
        "": "names no licence",
    }.items():
        write_card(clip, licence)
        notes = licence_notes(PublishedFolder(clip).licence())
        assert (note is None and notes == ()) or (note is not None and note in notes[0])
    assert read_published_model(clip).notes == notes


def _without_file(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _with(name: str, **fields: object) -> Callable[[Path], None]:
    return lambda folder: change_json(folder / name, **fields)


def _without_one_part(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    placed = {"logit_scale": "model-1.safetensors", "other": "model-2.safetensors"}
    write_json(folder / "model.safetensors.index.json", {"weight_map": placed})


def _slow_only(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "spiece.model")


def _byte_pairs(folder: Path) -> None:
    """Leaves what old repositories have: vocab.json and merges.txt."""
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    write_json(folder / "vocab.json", model["vocab"])
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    (folder / "tokenizer.json").unlink()


def _tokenizer(**fields: object) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        told = json.loads((folder / "tokenizer.json").read_text())
        write_json(folder / "tokenizer.json", told | fields)

    return changed


def _without_end(folder: Path) -> None:
    """Leaves the tokens around a text out, by a class that reads the file unchanged."""
    _tokenizer(post_processor=None)(folder)
    change_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def _random_splits(folder: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    _tokenizer(model=model | {"dropout": 0.5})(folder)


def _added_word(folder: Path) -> None:
    (folder / "added_tokens.json").write_text('{"<extra>": 520}')


def _cut_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _changed_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return changed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            _with("config.json", model_type="jina_clip"),
            "there are blip, .*OSCAR, VinVL, UNITER, VILLA and M3P",
        ),
        (_with("config.json", model_type="siglip2"), "fixed resolution"),
        (_with("config.json", auto_map={"AutoModel": "x.Model"}), "never run"),
        (_cut_weights, "damaged or cut short"),
        (
            _changed_weights(lambda weights: weights.pop("logit_scale")),
            "missing logit_scale",
        ),
        (
            _changed_weights(lambda weights: weights.update(extra=torch.ones(1))),
            "unexpected extra",
        ),
        (
            _changed_weights(lambda weights: weights.update(logit_scale=torch.tensor(torch.nan))),
            "NaN",
        ),
        (_without_file("model.safetensors"), "nor pytorch_model.bin"),
        (_without_file("preprocessor_config.json"), "preprocessing of pictures is unknown"),
        (_slow_only, "has no tokenizer.*save_pretrained"),
        (
            _with("config.json", quantization_config={"quant_method": "bitsandbytes"}),
            "quantised .quantization_config., which is not read; take the checkpoint that",
        ),
        (_without_one_part, "model-2.safetensors is missing, and model.safetensors.index.json"),
        (_with("tokenizer_config.json", padding_side="left"), "only right"),
        (_with("preprocessor_config.json", size=10**9), "resize_to is 1000000000"),
        (_with("config.json", vision_config={"patch_size": 0}), "ZeroDivisionError"),
        (_with("config.json", vision_config={"hidden_act": "odd"}), "KeyError 'odd'"),
        (_tokenizer(normalizer=None), "'TWO DOGS' into .*save_pretrained"),
        (_without_end, r"ends texts with \[\].*save_pretrained"),
        (_random_splits, "at random"),
        (_added_word, "<extra>.*520.*save_pretrained"),
    ],
)
def test_a_refused_folder_is_named_with_a_remedy(
    clip: Path, change: Callable[[Path], None], told: str
) -> None:
    change(clip)
    before = sorted(clip.iterdir())
    with pytest.raises(PublishedCheckpointInvalid, match=told) as refused:
        read_published_model(clip)
    assert str(clip) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert sorted(clip.iterdir()) == before


def _embedded(folder: Path) -> torch.Tensor:
    parts = _parts(folder)
    with torch.inference_mode():
        text: torch.Tensor = parts.embed_text(IDS, torch.ones_like(IDS))
        return torch.cat([text, parts.embed_image(torch.full((1, SIZE, SIZE, 3), 90).byte())])


def test_a_trainers_checkpoint_of_halves_in_shards_is_read(clip: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = {name: each.half() for name, each in load_file(clip / "model.safetensors").items()}
    save_file({name: each.float() for name, each in weights.items()}, clip / "model.safetensors")
    expected = _embedded(clip)
    (clip / "model.safetensors").unlink()
    names = sorted(weights)
    files = {name: f"model-0000{n % 2 + 1}-of-00002.safetensors" for n, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: weights[name] for name in names if files[name] == file}, clip / file)
    write_json(clip / "model.safetensors.index.json", {"metadata": {}, "weight_map": files})
    (clip / "optimizer.pt").write_bytes(b"\x80\x04 no pickle")
    write_json(clip / "trainer_state.json", {})

    torch.testing.assert_close(_embedded(clip), expected)


@pytest.mark.parametrize(
    ("prefix", "key"), [("module.", None), ("_orig_mod.module.", "state_dict"), ("", "model")]
)
def test_weights_that_a_training_loop_saved_are_read(
    clip: Path, prefix: str, key: str | None
) -> None:
    from safetensors.torch import load_file

    expected = _embedded(clip)
    weights = load_file(clip / "model.safetensors")
    (clip / "model.safetensors").unlink()
    stored: dict[str, object] = {f"{prefix}{name}": each for name, each in weights.items()}
    if key is not None:
        stored = {key: stored, "epoch": 3, "optimizer": {"state": {}}}
    torch.save(stored, clip / "pytorch_model.bin")
    torch.testing.assert_close(_embedded(clip), expected)


def test_an_adapter_is_refused_with_its_model_and_alone(clip: Path) -> None:
    """transformers applies it: without it, embeddings are 0.2 of cosine from the library's."""
    (clip / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(PublishedCheckpointInvalid, match="an adapter, or has one; merge it"):
        read_published_model(clip)
    for name in ("model.safetensors", "config.json"):
        (clip / name).unlink()
    with pytest.raises(PublishedCheckpointInvalid, match="an adapter, or has one; merge it"):
        is_published_folder(clip)


def test_vocabulary_and_merges_are_a_tokenizer(clip: Path) -> None:
    texts = [text for text in odd_texts() if "</s>" not in text]
    whole = read_published_model(clip)
    _byte_pairs(clip)
    apart = read_published_model(clip)
    rows = [
        [each.ids for each in model.tokenizers["tokenizer.json"].encode_batch(texts)]
        for model in (whole, apart)
    ]
    assert rows[0] == rows[1]
    assert {"vocab.json", "merges.txt"} <= set(apart.files_sha256)
    # Another merge is another tokenizer.
    lines = (clip / "merges.txt").read_text().splitlines()
    (clip / "merges.txt").write_text("\n".join(lines[:-1]))
    other = read_published_model(clip)
    assert other.files_sha256["merges.txt"] != apart.files_sha256["merges.txt"]
    tokenizer = other.tokenizers["tokenizer.json"]
    assert [each.ids for each in tokenizer.encode_batch(texts)] != rows[1]


@pytest.mark.parametrize("name", ["clip", "metaclip_2"])
def test_a_padding_token_that_no_file_names_is_that_of_the_class(
    published: Published, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    shutil.copytree(published(name), folder)
    named = _parts(folder).text.pad_id
    change_json(folder / "tokenizer_config.json", pad_token=None)
    assert _parts(folder).text.pad_id == named


def test_a_siglip_has_to_name_its_padding(published: Published, tmp_path: Path) -> None:
    folder = tmp_path / "siglip"
    shutil.copytree(published("siglip"), folder)
    change_json(folder / "tokenizer_config.json", pad_token=None)
    assert _parts(folder).text.pad_id == 1  # that of tokenizer.json
    change_json(folder / "tokenizer.json", padding=None)
    with pytest.raises(PublishedCheckpointInvalid, match="lacks a padding token"):
        read_published_model(folder)


def test_the_tokenizer_of_another_model_is_refused(clip: Path, published: Published) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(published("siglip") / name, clip / name)
    with pytest.raises(PublishedCheckpointInvalid, match="not of one checkpoint"):
        read_published_model(clip)


def test_a_siglip_tokenizer_that_keeps_punctuation_is_completed(
    published: Published, tmp_path: Path
) -> None:
    """As transformers' SiglipTokenizer reads: lower case, no punctuation, single spaces."""
    folder = shutil.copytree(published("siglip"), tmp_path / "siglip")
    change_json(folder / "tokenizer.json", normalizer={"type": "NFC"})
    [tokenizer] = read_published_model(folder).tokenizers.values()
    plain = tokenizer.encode("two dogs at a fence its ok").ids
    assert plain.count(2) == 0  # no unknown token
    punctuated = "".join(f"{each} " for each in string.punctuation)
    assert tokenizer.encode("Two DOGS, at: a (fence)! It's [ok]?").ids == plain
    assert tokenizer.encode(f" {punctuated}two dogs at a fence its ok{punctuated}").ids == plain

    change_json(folder / "tokenizer_config.json", do_lower_case=False)
    [cased] = read_published_model(folder).tokenizers.values()
    assert cased.encode("Two DOGS").ids != cased.encode("two dogs").ids
    assert cased.encode("two, dogs").ids == cased.encode("two dogs").ids
