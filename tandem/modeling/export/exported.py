"""Writes and loads the two TorchScript files of an export, and compares them with the eager model.

No other file uses TorchScript.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest
from tandem.model_io.precision import Precision
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_encoders import SeparateEncoders, encoders_in
from tandem.modeling.two_towers import TowerRoute, TwoTowers

# Both run on this machine on the same inputs. In fp32 only the order of additions may differ; in
# fewer bits, such a difference can round a value to its neighbour.
_TOLERANCES = {
    Precision.FP32: 1e-5,
    Precision.BF16: 1e-3,
    Precision.FP16: 1e-3,
    Precision.INT8: 1e-3,
}


class ExportMismatch(ValueError):
    """The exported model's output differs from the expected one."""


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """Holds both parts as a server loads them, and their manifest."""

    manifest: Manifest
    backbone: torch.jit.ScriptModule
    encoder: torch.jit.ScriptModule

    @classmethod
    def load(cls, manifest: Manifest, backbone_file: Path, encoder_file: Path) -> Self:
        """Loads both files; raises ExportMismatch naming one that is no TorchScript."""
        return cls(manifest, _load(backbone_file), _load(encoder_file))

    @torch.inference_mode()
    def check_answers(self) -> None:
        """Raises ExportMismatch unless every kind of served input gives a valid output.

        Valid means the shapes of the manifest, finite numbers, and embeddings of unit length.
        """
        manifest = self.manifest
        for batch in (1, 3):
            tokens_BRD = self.backbone(sample_pixels(manifest, batch))
            token_shape = (batch, manifest.image_token_count, manifest.token_width)
            _check_legal(IMAGE_BACKBONE, tokens_BRD, token_shape, torch.float16)
        for inputs in _served_inputs(manifest):
            batch = len(inputs[0])
            embeddings_BD, logits_B1 = self.encoder(*inputs)
            embedding_shape = (batch, manifest.embedding_dim)
            _check_legal(JOINT_ENCODER, embeddings_BD, embedding_shape, torch.float32)
            _check_legal(JOINT_ENCODER, logits_B1, (batch, 1), torch.float32)
            off = (embeddings_BD.norm(dim=-1) - 1.0).abs().max().item()
            if off > 1e-3:
                raise ExportMismatch(f"{JOINT_ENCODER}: embeddings are {off:.2e} off unit length")

    @torch.inference_mode()
    def compare(self, model: JointModel) -> None:
        """Raises ExportMismatch unless `model`, in the export's precision, gives the same.

        The tolerance is 1e-5 in fp32, else 1e-3, for each part.
        """
        tolerance = _TOLERANCES[Precision(self.manifest.precision)]
        backbone, encoder = model.image_backbone, model.joint_encoder
        for batch in (1, 3):
            pixels = sample_pixels(self.manifest, batch)
            _compare(IMAGE_BACKBONE, self.backbone(pixels), backbone(pixels), tolerance)
        for inputs in _served_inputs(self.manifest):
            for exported, eager in zip(self.encoder(*inputs), encoder(*inputs), strict=True):
                _compare(JOINT_ENCODER, exported, eager, tolerance)


def write_exported(
    model: JointModel, manifest: Manifest, backbone_file: Path, encoder_file: Path
) -> None:
    """Traces both parts of a model and writes them."""
    backbone, encoder = model.image_backbone, model.joint_encoder
    pairs = sample_pairs(
        manifest, 2, min(7, manifest.max_text_tokens), min(5, manifest.image_token_count)
    )
    torch.jit.save(_traced(backbone, (sample_pixels(manifest, 2),)), str(backbone_file))
    if isinstance(encoder, SeparateEncoders):
        # A trace records one branch, so the choice between the encoders is scripted.
        traced = (_traced(each, pairs) for each in encoders_in(encoder))
        torch.jit.save(torch.jit.script(SeparateEncoders(*traced)), str(encoder_file))
    elif isinstance(encoder, TwoTowers):
        torch.jit.save(torch.jit.script(_traced_towers(encoder.route(), pairs)), str(encoder_file))
    else:
        torch.jit.save(_traced(encoder, pairs), str(encoder_file))


def _traced_towers(route: TowerRoute, pairs: tuple[Tensor, ...]) -> TowerRoute:
    """Returns the route over traced functions; the text tower's weights are in the file once."""
    ids, text_mask, tokens, image_mask = pairs
    return TowerRoute(
        _traced(route.text, (ids, text_mask)),
        _traced(route.image, (tokens, image_mask)),
        _traced(route.pair, pairs),
    )


def sample_pixels(manifest: Manifest, batch: int) -> Tensor:
    """Returns random pictures, uint8 [B, H, W, 3]."""
    size = manifest.image_size
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, generator=generator)


def sample_pairs(
    manifest: Manifest, batch: int, text_length: int, image_length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns random inputs; each text after the first is padded in its second half."""
    generator = torch.Generator().manual_seed(batch * 1000 + text_length)
    ids = torch.randint(
        0, manifest.vocabulary_size, (batch, text_length), dtype=torch.int64, generator=generator
    )
    text_mask = torch.ones_like(ids)
    text_mask[1:, max(1, text_length // 2) :] = 0
    tokens = torch.randn(batch, image_length, manifest.token_width, generator=generator).half()
    return ids, text_mask, tokens, torch.ones(batch, image_length, dtype=torch.int64)


def _served_inputs(manifest: Manifest) -> Iterator[tuple[Tensor, ...]]:
    """Yields text alone, image alone and pairs, in sizes other than the traced ones."""
    for batch in (1, 5):
        for text_length in manifest.text_length_buckets:
            ids, text_mask, tokens, image_mask = sample_pairs(manifest, batch, text_length, 1)
            yield ids, text_mask, torch.zeros_like(tokens), torch.zeros_like(image_mask)
            yield sample_pairs(manifest, batch, text_length, manifest.image_token_count)
        yield sample_pairs(manifest, batch, 1, manifest.image_token_count)


@torch.inference_mode()
def _traced(module: nn.Module, example: tuple[Tensor, ...]) -> torch.jit.ScriptModule:
    # A trace records whether a GPU may use TF32 for convolutions, as it does by default: fp32 on a
    # GPU would then have ten bits and differ from the CPU.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return torch.jit.trace(module, example, check_trace=False)


def _load(path: Path) -> torch.jit.ScriptModule:
    try:
        return torch.jit.load(str(path))
    except RuntimeError as error:
        raise ExportMismatch(f"{path} is no TorchScript of this torch: {error}") from error


def _check_legal(name: str, answer: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if answer.shape != shape or answer.dtype != dtype:
        raise ExportMismatch(
            f"{name}: gives {list(answer.shape)} {answer.dtype} instead of {list(shape)} {dtype}"
        )
    if not answer.isfinite().all():
        raise ExportMismatch(f"{name}: gives NaN or infinity")


def _compare(name: str, exported: Tensor, eager: Tensor, tolerance: float) -> None:
    if exported.shape != eager.shape or exported.dtype != eager.dtype:
        raise ExportMismatch(
            f"{name}: exported {list(exported.shape)} {exported.dtype}, "
            f"eager {list(eager.shape)} {eager.dtype}"
        )
    difference = (exported.double() - eager.double()).abs().max().item()
    if not difference <= tolerance:  # also true of NaN
        raise ExportMismatch(f"{name}: exported and eager differ by {difference:.2e}")
