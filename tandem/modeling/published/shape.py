"""Reads a model's shape from its config.json, checked by arithmetic before memory is taken."""

from collections.abc import Mapping
from typing import Any, Final

from tandem.files.json_object import within
from tandem.modeling.config import JointConfig

# Numbers outside of these build a model whose forward fails, or never end building one.
_RANGES: Final = {
    "hidden_size": (1, 65_536),
    "image_size": (1, 4_096),
    "intermediate_size": (1, 1_000_000),
    "layer_norm_eps": (0.0, 1.0),
    "max_position_embeddings": (1, 1_000_000),
    "n_heads": (1, 65_536),
    "n_layers": (1, 1_000),
    "num_attention_heads": (1, 65_536),
    "num_hidden_layers": (1, 1_000),
    "visual_embedding_dim": (1, 65_536),
    "type_vocab_size": (1, 65_536),
    "vocab_size": (1, 10_000_000),
}
# Another value would be another function of the same weights.
SERVED_BERT: Final[dict[str, tuple[object, ...]]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
}
_BERT_FIELDS: Final = {
    "vocabulary_size": "vocab_size",
    "width": "hidden_size",
    "layer_count": "num_hidden_layers",
    "head_count": "num_attention_heads",
    "feed_forward_width": "intermediate_size",
    "max_text_tokens": "max_position_embeddings",
}


def check_ranges(fields: Mapping[str, Any], part: str = "") -> None:
    """Raises ValueError for a size, a count or an epsilon that no model or part has, by name."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            check_ranges(value, f"{part}{name}.")
        elif limits := _RANGES.get(name):
            for each in value if name == "image_size" and isinstance(value, list) else [value]:
                within(f"{part}{name}", each, *limits)


def bert_config(fields: Mapping[str, Any], **own: Any) -> JointConfig:  # noqa: ANN401  of JointConfig
    """Returns the shape that BERT's config.json gives, with fields of our own."""
    check_ranges(fields)
    return JointConfig(
        **{name: fields[published] for name, published in _BERT_FIELDS.items()} | own,
        encoder="post_norm",
        norm_epsilon=fields.get("layer_norm_eps", 1e-12),
    )
