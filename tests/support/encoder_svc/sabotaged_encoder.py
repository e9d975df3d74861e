"""encoder_svc without limits, that keeps what it decodes: the control of the memory test."""

import asyncio
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from encoder_svc import __main__
from encoder_svc.settings import EncoderSettings
from tandem.chassis.serve.arguments import load_or_exit
from tandem.contract.deadline import Deadline
from tandem.local.encoding import encoder
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image_rules import ImageRules

KEPT: list[Any] = []


def decode_and_keep(
    image_bytes: bytes,
    rules: ImageRules,
    heif: HeifReader | None = None,
    deadline: Deadline | None = None,
) -> NDArray[np.uint8]:
    """Returns uint8 [size, size, 3], of anything that Pillow knows."""
    with Image.open(io.BytesIO(image_bytes)) as image:
        KEPT.append(image.convert("RGB"))
        return np.asarray(KEPT[-1].resize((rules.size, rules.size)))


if __name__ == "__main__":
    encoder.decode_image = decode_and_keep  # type: ignore[attr-defined]
    asyncio.run(__main__.main(load_or_exit(EncoderSettings, "ENCODER_")))
