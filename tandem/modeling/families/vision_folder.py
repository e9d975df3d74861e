"""Opens a published vision network to train over: its configuration, its pixels, its weights.

A folder of a whole CLIP or SigLIP gives its image side; a classifier's head is left out.

Shapes: R image tokens, D token width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import torch

from tandem.modeling.families.image_rules import has_processor, processor_fit, read_processor
from tandem.modeling.image_sources.vision_tower import (
    PIXEL_FACTOR,
    VisionTower,
    class_options,
    vision_network,
)
from tandem.modeling.published.files import published_folder
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.stored_weights import not_finite

_PARTS: Final = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}
_LEFT_OUT: Final = frozenset({"architectures", "transformers_version", "torch_dtype", "dtype"})
_LABELS: Final = frozenset({"id2label", "label2id"})
_DEFAULT_SIZE: Final = 224
_SHOWN_COUNT: Final = 6
# Mean and deviation.
_IMAGENET: Final = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True, slots=True)
class PublishedVision:
    """Describes a published vision network, in the terms of JointConfig."""

    folder: PublishedFolder
    vision: Mapping[str, Any]
    """JointConfig.vision."""
    image_size: int
    token_count: int
    token_width: int

    @classmethod
    def open(cls, name_or_folder: str) -> "PublishedVision":
        """Opens a folder, or downloads a checkpoint of that name from the hub.

        Raises PublishedCheckpointInvalid for a folder without a known vision network.
        """
        folder = PublishedFolder(published_folder(name_or_folder))
        with folder.reading("it has no vision network that can be read"):
            network = _network_fields(folder)
            size, mean, std = _pixels(folder, network)
        vision = {"network": network, "mean": mean, "std": std}
        return cls(folder, vision, size, *_token_shape(folder, network, size))

    def start(self, tower: VisionTower) -> None:
        """Loads the folder's weights; refuses missing and misshapen ones, leaves out a head's."""
        from transformers.utils import logging

        network = tower.network
        # It would report weights that are left out on purpose.
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with self.folder.reading("its weights cannot be read"):
            # Its own loading: older files have other names for the same weights.
            loaded, report = type(network).from_pretrained(  # type: ignore[attr-defined]
                self.folder.path,
                config=network.config,
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32,
                **class_options(self.vision["network"]),
            )
        faults = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        if faults:
            raise self.folder.unserved(
                f"the weights are not those of {type(network).__name__}: missing or of another "
                f"shape {', '.join(faults[:_SHOWN_COUNT])}"
            )
        if names := not_finite(loaded.state_dict()):
            raise self.folder.refused(f"weights are NaN or infinite: {names}; download it again")
        network.load_state_dict(loaded.state_dict())

    def weights_sha256(self) -> str:
        """Returns the digest of all weights, by name."""
        digest = sha256()
        for name, tensor in sorted(self.folder.read_weights().items()):
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()


def _network_fields(folder: PublishedFolder) -> dict[str, Any]:
    fields = folder.config()
    kind = fields.get("model_type")
    if isinstance(kind, str) and kind in _PARTS:
        fields = {**fields["vision_config"], "model_type": _PARTS[kind]}
    return {name: v for name, v in fields.items() if name not in _LEFT_OUT | _LABELS}


def _pixels(
    folder: PublishedFolder, network: Mapping[str, Any]
) -> tuple[int, list[float], list[float]]:
    """Returns the side of pictures, and mean and deviation of their levels of 0 to 1."""
    if not has_processor(folder):
        return network.get("image_size", _DEFAULT_SIZE), *map(list, _IMAGENET)
    settings = read_processor(folder, "ViTImageProcessor")
    mean, std = settings.image_mean, settings.image_std
    if not settings.do_normalize:
        mean, std = [0.0] * 3, [1.0] * 3
    levels = (settings.rescale_factor if settings.do_rescale else 1.0) / PIXEL_FACTOR
    _, _, size = processor_fit(settings)
    return size, [each / levels for each in mean], [each / levels for each in std]


@torch.inference_mode()
def _token_shape(folder: PublishedFolder, fields: Mapping[str, Any], size: int) -> tuple[int, int]:
    """Returns R and D, by running the network without memory for its weights."""
    with folder.reading(f"it gives no image tokens of {size} pixels"), torch.device("meta"):
        network = vision_network(fields).eval()
        states = network(pixel_values=torch.empty(1, 3, size, size)).last_hidden_state
    if states.ndim == 4:
        return int(states.shape[2] * states.shape[3]), int(states.shape[1])
    return int(states.shape[1]), int(states.shape[2])
