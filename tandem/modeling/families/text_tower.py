"""Reads text towers of sentence-transformers: an encoder, a pooling, and layers on top.

Such a tower was trained into the space of a CLIP, as clip-ViT-B-32-multilingual-v1, and is served
with that CLIP's image tower.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tokenizers import Tokenizer
from torch import nn

from tandem.model_io.texts.text_rules import TextRules
from tandem.modeling.families.loaded_model import load_model, parameter_count, read_config
from tandem.modeling.families.modules_file import (
    NORMALIZE,
    ModuleEntry,
    check_step,
    read_library_modules,
)
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.text_rules import read_text_rules
from tandem.modeling.families.towers import PooledTextTower, Pooling, UnitLength
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.licence import licence_notes
from tandem.platform.files.json_object import shown

FAMILY: Final = "text_tower"
_NOTE: Final = (
    "That both towers share a space is the user's word: only their number of dimensions is checked."
)
_TRANSFORMER_SETTINGS: Final = "sentence_bert_config.json"
_MODEL_SETTINGS: Final = "config_sentence_transformers.json"
_POOLINGS: Final[Mapping[str, Pooling]] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
}
# Newer files have one field, by these names.
_POOLING_NAMES: Final[Mapping[str, str]] = {short: name for name, short in _POOLINGS.items()}
_ACTIVATIONS: Final[Mapping[str, Callable[[], nn.Module]]] = {
    "Identity": nn.Identity,
    "Tanh": nn.Tanh,
    "GELU": nn.GELU,
    "ReLU": nn.ReLU,
}
# By model_type: the classes of transformers, what they take, and the positions before a text's.
_ENCODERS: Final[Mapping[str, tuple[str, dict[str, bool], int]]] = {
    "bert": ("Bert", {"add_pooling_layer": False}, 0),
    "distilbert": ("DistilBert", {}, 0),
    "roberta": ("Roberta", {"add_pooling_layer": False}, 2),
    "xlm-roberta": ("XLMRoberta", {"add_pooling_layer": False}, 2),
}
# Published with a head that embeds nothing.
_UNUSED: Final = ("pooler.", "lm_head.", "cls.", "vocab_")


def read_text_tower(folder: PublishedFolder, image: PublishedModel) -> PublishedModel:
    """Returns the model of the tower that modules.json lists, and of another's image tower.

    Refuses steps other than those of such a tower, and embeddings of different length. The files of
    the image tower are named with "image_encoder/" before.
    """
    entries = read_library_modules(folder)
    kinds = [each.kind for each in entries[:2]]
    folder.check_served({"modules": kinds}, {"modules": (["Transformer", "Pooling"],)})
    transformer, *steps = entries
    inner = folder.inner(transformer.path)
    architecture, encoder, config = _encoder(inner)
    tokenizer, text = _text_rules(folder, inner, config)
    pooling, layers, dim = _steps(folder, steps, config)
    embed_text = PooledTextTower(encoder, pooling, layers).eval()
    if image.bi_encoder is None:
        raise folder.refused(
            f"the image encoder is a {image.family}, which embeds no pictures; name a model that "
            "does, as the card of the text tower says"
        )
    if (theirs := image.bi_encoder.embedding_dim) != dim:
        raise folder.refused(
            f"it gives {dim} dimensions and the image encoder {theirs}; name the model whose image "
            "tower it was trained for, as its model card says"
        )
    licence = folder.licence()
    notes = (*licence_notes(licence), *licence_notes(image.licence), _NOTE)
    files = {f"image_encoder/{name}": each for name, each in image.files_sha256.items()}
    return PublishedModel(
        family=FAMILY,
        architecture=f"{architecture}, {image.architecture}",
        licence=" and ".join(sorted({each for each in (licence, image.licence) if each})),
        parameter_count=parameter_count(embed_text, image.bi_encoder.embed_image),
        files_sha256={**folder.sha256s(), **files},
        tokenizers={text.tokenizer: tokenizer},
        bi_encoder=replace(
            image.bi_encoder, embed_text=embed_text, text=text, has_image_tokens=False
        ),
        cross_encoder=None,
        notes=tuple(dict.fromkeys(notes)),
    )


def _encoder(folder: PublishedFolder) -> tuple[str, nn.Module, Any]:
    import transformers

    fields = folder.config()
    folder.check_served({"model_type": None} | fields, {"model_type": tuple(_ENCODERS)})
    kind = fields["model_type"]
    name, options, _ = _ENCODERS[kind]
    config = read_config(folder, getattr(transformers, f"{name}Config"), fields)
    prefix = f"{kind.removeprefix('xlm-')}."

    def renamed(stored: str) -> str | None:
        present = stored.removeprefix(prefix)
        return None if present.startswith(_UNUSED) else present

    model = load_model(
        folder, getattr(transformers, f"{name}Model"), config, renamed=renamed, options=options
    )
    return f"{name}Model", model, config


def _text_rules(
    folder: PublishedFolder,
    inner: PublishedFolder,
    config: Any,  # noqa: ANN401  of transformers
) -> tuple[Tokenizer, TextRules]:
    settings = inner.optional_fields(_TRANSFORMER_SETTINGS)
    folder.check_served(settings, {"processing_kwargs": (None, {})})
    positions = config.max_position_embeddings - _ENCODERS[config.model_type][2]
    longest = settings.get("max_seq_length")
    tokenizer, text = read_text_rules(
        inner,
        vocabulary_size=config.vocab_size,
        position_count=min(positions, longest or positions),
    )
    prompt, is_lower_case = _prompt(folder), bool(settings.get("do_lower_case"))
    # The library lowers the prompt with the text.
    return tokenizer, replace(
        text, is_lower_case=is_lower_case, prompt=prompt.lower() if is_lower_case else prompt
    )


def _prompt(folder: PublishedFolder) -> str:
    """Returns the text that the library puts before every text by default."""
    settings = folder.optional_fields(_MODEL_SETTINGS)
    name = settings.get("default_prompt_name")
    if name is None:
        return ""
    return str(settings["prompts"][name])


def _steps(
    folder: PublishedFolder,
    steps: Sequence[ModuleEntry],
    config: Any,  # noqa: ANN401  of transformers
) -> tuple[Pooling, nn.Module, int]:
    """Returns the pooling, the layers after it, and the number of dimensions that they give."""
    pooling = _pooling(folder.inner(steps[0].path))
    dim = int(getattr(config, "hidden_size", None) or config.dim)
    layers: list[nn.Module] = []
    for step in steps[1:]:
        folder.check_served({"module": step.kind}, {"module": ("Dense", NORMALIZE)})
        inner = folder.inner(step.path)
        check_step(inner)
        if step.kind == NORMALIZE:  # before a layer it changes more than the length
            layers.append(UnitLength())
        else:
            added, dim = _dense(inner, dim)
            layers += added
    return pooling, nn.Sequential(*layers), dim


def _pooling(folder: PublishedFolder) -> Pooling:
    fields = folder.config()
    named = fields.get("pooling_mode")
    modes = [name for name, value in fields.items() if name.startswith("pooling_mode_") and value]
    if named is not None:
        several = named if isinstance(named, list) else [named]
        modes = [_POOLING_NAMES.get(str(each), str(each)) for each in several]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise folder.unserved(f"it pools by {shown(modes)}; {', '.join(_POOLINGS)} are served")
    folder.check_served(fields, {"include_prompt": (True,)})
    return _POOLINGS[modes[0]]


def _dense(folder: PublishedFolder, width: int) -> tuple[list[nn.Module], int]:
    fields = folder.config()
    folder.check_served(fields, {"in_features": (width,), "use_residual": (False, None)})
    out = fields["out_features"]
    activation = str(fields.get("activation_function", "torch.nn.Tanh"))
    # Any other class would be code of the checkpoint.
    name = activation.rpartition(".")[2]
    if name not in _ACTIVATIONS or not activation.startswith("torch."):
        raise folder.unserved(f"activation_function is {shown(activation)}, which is not served")
    linear = nn.Linear(width, out, bias=fields.get("bias", True) is True)
    weights = {n.removeprefix("linear."): each for n, each in folder.read_weights().items()}
    linear.load_state_dict(weights)
    return [linear.requires_grad_(False), _ACTIVATIONS[name]()], out
