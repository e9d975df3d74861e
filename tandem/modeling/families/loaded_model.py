"""Loads published weights into a class of transformers, by name and without exception.

transformers itself initialises a missing weight at random and drops one that it does not know;
here either is an error, found by the files' headers before memory is allocated.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from torch import Tensor, nn

from tandem.modeling.image_sources.vision_tower import model_fields
from tandem.modeling.published.files import CONFIG
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.stored_weights import weight_faults, weights_like
from tandem.platform.files.json_object import shown

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Model = TypeVar("Model", bound="PreTrainedModel")
Weight = TypeVar("Weight")

Attention = Literal["sdpa", "eager"]
Renaming = Callable[[str], str | None]
"""Returns a stored weight's present name, or None for one that is not needed."""

# Older files store these counters with the weights.
_COUNTERS: Final = re.compile(r"(^|\.)position_ids$")


def read_config(
    folder: PublishedFolder, kind: "type[PreTrainedConfig]", fields: Mapping[str, Any]
) -> Any:  # noqa: ANN401  its types say that any field may be missing
    """Returns the fields as a configuration of transformers; refuses values that it refuses."""
    if fields.get("quantization_config"):
        raise folder.refused(
            "its weights are quantised (quantization_config), which is not read; take the "
            "checkpoint that they were made from, with the --precision that you want"
        )
    with folder.reading(f"its configuration is none of {kind.__name__}"):
        # Whatever number type the weights were saved in, they are read in float32.
        return kind.from_dict({**model_fields(fields), "torch_dtype": None, "dtype": "float32"})


def load_model(
    folder: PublishedFolder,
    kind: type[Model],
    config: "PreTrainedConfig",
    *,
    attention: Attention = "sdpa",
    renamed: Renaming = lambda name: name,
    options: Mapping[str, object] | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> Model:
    """Returns the model with the folder's weights, float32 on the CPU, in evaluation mode.

    `options` go to the model's class; `weights` were converted from another format. Refuses a
    missing, an unknown and a misshapen weight, and one that is NaN or infinite.
    """
    from transformers.initialization import no_init_weights

    declared = folder.declared_weights() if weights is None else weights_like(weights)
    config._attn_implementation = attention  # noqa: SLF001  transformers has no public name
    # Memory that is never written is never taken: the stored weights replace it.
    with folder.reading(f"no {kind.__name__} has its configuration"), no_init_weights():
        model = kind(config, **(options or {}))
    if faults := weight_faults(_present(declared, renamed), weights_like(model.state_dict())):
        of = f", and {CONFIG} names {shown(config.architectures)}" if config.architectures else ""
        raise folder.refused(
            f"the weights are not those of {kind.__name__}{of}: {'; '.join(faults)}; take "
            "configuration and weights of one checkpoint"
        )
    stored = folder.read_weights() if weights is None else weights
    model.load_state_dict(_present(stored, renamed), assign=True)
    return model.eval().requires_grad_(False)


def parameter_count(*modules: nn.Module) -> int:
    return sum({p.data_ptr(): p.numel() for m in modules for p in m.parameters()}.values())


def _present(weights: Mapping[str, Weight], renamed: Renaming) -> dict[str, Weight]:
    present = {}
    for stored_name, weight in weights.items():
        name = renamed(stored_name)
        if name is not None and not _COUNTERS.search(name):
            present[name] = weight
    return present
