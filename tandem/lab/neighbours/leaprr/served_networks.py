"""Exports trained networks as the Triton model that rerank_svc calls.

Both directions are in one file, so that the server needs no second model with its own processes;
the number of a graph's nodes selects the network. Shapes: B graphs, M nodes, F features.
"""

import shutil
from dataclasses import asdict, replace
from hashlib import sha256
from json import dumps
from pathlib import Path

import torch
from torch import Tensor, nn

from tandem.lab.neighbours.leaprr.network import GraphNetwork
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel, neighbour_count, threshold_nodes
from tandem.lab.neighbours.leaprr.training_folder import (
    MANIFEST_NAME,
    MODEL_NAME,
    check_form,
)
from tandem.model_io.repository.manifest import config_file, model_file
from tandem.model_io.repository.neighbour_config import neighbour_config
from tandem.model_io.repository.neighbour_manifest import (
    FORMAT_VERSION,
    NEIGHBOUR_MODEL,
    NeighbourDirection,
    NeighbourModelManifest,
    neighbours_file,
)
from tandem.modeling.export.device_free import free_of_device
from tandem.modeling.export.exported import ExportMismatch
from tandem.platform.files.json_object import FileInvalid, read_object
from tandem.platform.files.tensor_file import opened_for_torch

_STAGING_NAME = ".staging"
# As for other models in fp32: only the order of additions may differ.
_TOLERANCE = 1e-5


class ServedNetwork(nn.Module):
    """Gives one direction's scores, from tensors that Triton passes."""

    def __init__(self, network: GraphNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, features_BMF: Tensor, affinity_BMM: Tensor, mask_BM: Tensor) -> Tensor:
        """Returns [B, M]; `mask_BM` is int64, 1 for a node of the graph."""
        scores_BM: Tensor = self.network(features_BMF, affinity_BMM, mask_BM.bool())[0]
        return scores_BM


class ServedNetworks(nn.Module):
    """Gives a graph to the network of its direction."""

    def __init__(self, text_query: nn.Module, image_query: nn.Module, text_node_count: int) -> None:
        """Takes a graph of `text_node_count` nodes for a text's, and any other for an image's."""
        super().__init__()
        self.text_query = text_query
        self.image_query = image_query
        self.text_node_count = text_node_count

    def forward(self, features_BMF: Tensor, affinity_BMM: Tensor, mask_BM: Tensor) -> Tensor:
        """Returns [B, M]."""
        if features_BMF.size(1) == self.text_node_count:
            scores_BM: Tensor = self.text_query(features_BMF, affinity_BMM, mask_BM)
        else:
            scores_BM = self.image_query(features_BMF, affinity_BMM, mask_BM)
        return scores_BM


def install_leaprr(
    model: LeaprrModel, base_fingerprint: str, repository: Path, rerank_k: int = 0
) -> NeighbourModelManifest:
    """Writes the networks as a Triton model, and returns their description.

    It is written last, so that an interrupted export leaves none. Raises ExportMismatch, having
    written nothing, unless exported and eager networks agree within 1e-5, and ValueError for a
    configuration that cannot be served.
    """
    manifest = described(model, base_fingerprint, rerank_k)
    target = model_file(repository, NEIGHBOUR_MODEL)
    staged = target.parent / _STAGING_NAME / target.name
    try:
        staged.parent.mkdir(parents=True, exist_ok=True)
        _write(model, manifest, staged)
        whole = replace(manifest, sha256=sha256(staged.read_bytes()).hexdigest())
        whole.check()
        neighbours_file(repository).unlink(missing_ok=True)
        staged.replace(target)
        config = neighbour_config(whole)
        config_file(repository, NEIGHBOUR_MODEL).write_text(config, encoding="utf-8")
        whole.write(neighbours_file(repository))
    finally:
        shutil.rmtree(staged.parent, ignore_errors=True)
    return whole


def described(
    model: LeaprrModel, base_fingerprint: str, rerank_k: int = 0
) -> NeighbourModelManifest:
    """Returns the description of networks, without the digest of an export.

    `rerank_k` is the size of the pools that they learned over, 0 over the bi-encoder. Raises
    ValueError for networks that read other pillars than the nearest of both modalities.
    """
    config = model.config
    if (config.pillar_rank, config.pillar_modality) != ("top", "both"):
        raise ValueError(
            f"the networks read {config.pillar_modality} pillars from the {config.pillar_rank} of "
            "the lists; only those with both pillars from the top are served"
        )
    text_query = _direction(model, is_text_query=True)
    image_query = _direction(model, is_text_query=False)
    if image_query.node_count == text_query.node_count:
        image_query = replace(image_query, node_count=image_query.node_count + 1)
    return NeighbourModelManifest(
        format_version=FORMAT_VERSION,
        sha256="",
        fingerprint=networks_fingerprint(model, base_fingerprint),
        base_fingerprint=base_fingerprint,
        pillar_count=config.pillar_count,
        neighbour_count=config.affinity_neighbours,
        affinity_sharpness=config.affinity_sharpness,
        includes_query_pillar=config.includes_query_pillar,
        text_query=text_query,
        image_query=image_query,
        rerank_k=rerank_k,
    )


def trained_over(path: Path) -> tuple[Path, str | None, int]:
    """Returns the networks' file of a folder or file, and the model and rerank_k they learned over.

    None and 0 if nothing says so. Raises FileInvalid for a damaged description, and for networks
    that learned from another form of similarities than a search has.
    """
    folder, file = (path, path / MODEL_NAME) if path.is_dir() else (path.parent, path)
    description = folder / MANIFEST_NAME
    if not description.is_file():
        return file, None, 0
    try:
        training = read_object(description)
        lists = training["plan"]["train"]
        fingerprint, rerank_k = str(lists["model_fingerprint"]), int(lists["pool_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileInvalid(f"{description} describes no training of LeaPRR: {error}") from error
    check_form(folder, rerank_k, training.get("scored_pairs"))
    return file, fingerprint, rerank_k


def _direction(model: LeaprrModel, *, is_text_query: bool) -> NeighbourDirection:
    item_count = neighbour_count(model.config, is_text_query)
    return NeighbourDirection(
        item_count=item_count,
        node_count=1 + item_count,
        threshold_nodes=threshold_nodes(model.config, is_text_query),
    )


def networks_fingerprint(model: LeaprrModel, base_fingerprint: str) -> str:
    """Returns a digest of weights and configuration, which does not depend on the export."""
    digest = sha256(dumps([base_fingerprint, asdict(model.config)], sort_keys=True).encode())
    for network in (model.text_queries, model.image_queries):
        for name, tensor in sorted(network.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def _write(model: LeaprrModel, manifest: NeighbourModelManifest, path: Path) -> None:
    """Traces both networks, made for inference, into one file, and holds its scores to theirs."""
    pairs = [
        (network.eval(), _samples(manifest, direction))
        for network, direction in [
            (model.text_queries, manifest.text_query),
            (model.image_queries, manifest.image_query),
        ]
    ]
    text_query, image_query = (
        free_of_device(
            torch.jit.trace(ServedNetwork(network.for_inference()), samples[0], check_trace=False)
        )
        for network, samples in pairs
    )
    # A trace records one branch, so the choice is scripted.
    both = ServedNetworks(text_query, image_query, manifest.text_query.node_count)
    with opened_for_torch(path) as file:
        torch.jit.save(torch.jit.script(both), file)
    loaded = torch.jit.load(str(path))
    for network, samples in pairs:
        for inputs in samples:
            off = (loaded(*inputs) - ServedNetwork(network)(*inputs)).abs().max().item()
            if not off <= _TOLERANCE:  # also true of NaN
                raise ExportMismatch(f"{NEIGHBOUR_MODEL}: exported and eager differ by {off:.2e}")


def _samples(
    manifest: NeighbourModelManifest, direction: NeighbourDirection
) -> list[tuple[Tensor, ...]]:
    """Returns inputs of several batch sizes, with graphs that lack nodes."""
    node_count = direction.node_count
    generator = torch.Generator().manual_seed(0)
    samples: list[tuple[Tensor, ...]] = []
    for batch in (2, 1, 5):
        mask_BM = torch.ones((batch, node_count), dtype=torch.int64)
        mask_BM[-1, 1 + direction.item_count // 2 :] = 0
        shape = (batch, node_count, 2 * manifest.pillar_count)
        features_BMF = 2 * torch.rand(shape, generator=generator) - 1
        affinity_BMM = torch.rand((batch, node_count, node_count), generator=generator)
        affinity_BMM = affinity_BMM * mask_BM[:, None] * mask_BM[:, :, None]
        samples.append((features_BMF, affinity_BMM, mask_BM))
    return samples
