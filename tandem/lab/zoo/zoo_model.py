"""Puts a network of the zoo over a frozen image backbone, with the interface of a joint model.

Shapes: B batch, T text tokens, R image tokens, D width of an image token and of embeddings.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig, ZooName
from tandem.lab.zoo.network import ZooNetwork
from tandem.lab.zoo.networks.camera import Camera
from tandem.lab.zoo.networks.camp import Camp, GatedCamp
from tandem.lab.zoo.networks.dime import Dime
from tandem.lab.zoo.networks.saem import Saem
from tandem.lab.zoo.networks.scan import Scan
from tandem.lab.zoo.networks.sgraf import Sgraf
from tandem.lab.zoo.networks.vse_infinity import VseInfinity
from tandem.lab.zoo.networks.vse_pp import VsePlusPlus
from tandem.lab.zoo.networks.vsrn import Vsrn
from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.image_tokens import image_backbone_of

NETWORKS: Final[Mapping[ZooName, Callable[[ZooConfig], ZooNetwork]]] = {
    "vse_pp": VsePlusPlus,
    "vse_infinity": VseInfinity,
    "scan_t2i": partial(Scan, asking="t2i"),
    "scan_i2t": partial(Scan, asking="i2t"),
    "scan_t2i_lse": partial(Scan, asking="t2i", pooling="lse"),
    "scan_i2t_lse": partial(Scan, asking="i2t", pooling="lse"),
    "sgr": partial(Sgraf, reading="sgr"),
    "saf": partial(Sgraf, reading="saf"),
    "camp": Camp,
    "camp_gated": GatedCamp,
    "vsrn": Vsrn,
    "saem": Saem,
    "camera": Camera,
    "dime_i2t": partial(Dime, refining="i2t"),
    "dime_t2i": partial(Dime, refining="t2i"),
}
"""The networks by name, with weights from torch's generator."""


class ZooModel(nn.Module):
    """Combines an image backbone with a network of the zoo.

    Embedding raises ValueError for a network that only scores pairs.
    """

    def __init__(self, zoo: ZooConfig) -> None:
        super().__init__()
        self.zoo = zoo
        self.image_backbone = image_backbone_of(zoo.inputs)
        self.network = NETWORKS[zoo.model](zoo)

    @property
    def config(self) -> JointConfig:
        """What the model reads."""
        return self.zoo.inputs

    def embed_texts(self, input_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        return self.network.embedding(self.network.read_texts(input_ids_BT, text_mask_BT))

    def embed_images(
        self, tokens_BRD: Tensor, cls_id: int, image_mask_BR: Tensor | None = None
    ) -> Tensor:
        """Returns embeddings; no network of the zoo reads a [CLS] with a single image."""
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        return self.network.embedding(self.network.read_images(tokens_BRD, mask_BR))

    def match_logits(
        self,
        input_ids_BT: Tensor,
        text_mask_BT: Tensor,
        tokens_BRD: Tensor,
        image_mask_BR: Tensor | None = None,
    ) -> Tensor:
        """Returns match logits; of a network that only embeds, the cosines."""
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        images = self.network.read_images(tokens_BRD, mask_BR)
        texts = self.network.read_texts(input_ids_BT, text_mask_BT)
        return self.network.logits(self.network.row_by_row(images, texts))


def _all_count(tokens_BRD: Tensor) -> Tensor:
    return torch.ones(tokens_BRD.shape[:2], dtype=torch.int64, device=tokens_BRD.device)
