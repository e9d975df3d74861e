"""Describes an exported neighbour model (LeaPRR): the exporter writes it, rerank_svc reads it.

It is a file of its own next to the manifest, because the model whose embeddings it reads is the
same with and without it.
"""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from tandem.contract.limits import MAX_NEIGHBOUR_CANDIDATE_COUNT, MAX_RETRIEVE_K
from tandem.contract.model_description import NeighbourModelDescription
from tandem.model_io.repository.manifest import config_file, model_file
from tandem.platform.files.json_object import FileInvalid, from_fields, read_object, shown, within
from tandem.platform.files.whole_file import write_text_whole

NEIGHBOURS_NAME = "neighbours.json"
NEIGHBOUR_MODEL = "leaprr"
"""The Triton model of both directions."""
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourDirection:
    """Describes the graphs of one direction."""

    item_count: int
    """Items of a graph, without the query."""
    node_count: int
    """Nodes of a graph as the model reads it: the query, its items, and masked ones. It selects
    the direction's network, so that the two directions have different counts."""
    threshold_nodes: int | None
    """The n of the affinity threshold; None is the graph's own number of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourModelManifest:
    """Describes a neighbour model: a Triton model, and how to make its graphs."""

    format_version: int
    sha256: str
    """Of model.pt."""
    fingerprint: str
    """Of its weights and configuration."""
    base_fingerprint: str
    """The model over whose embeddings it was trained."""
    pillar_count: int
    """Of each modality."""
    neighbour_count: int
    """Nearest of each modality by which affinity compares two nodes."""
    affinity_sharpness: float
    includes_query_pillar: bool
    """Whether the query is the first of its own modality's pillars."""
    text_query: NeighbourDirection
    image_query: NeighbourDirection
    rerank_k: int = 0
    """Of the searches whose order by the cross-encoder it learned over; 0 for the bi-encoder's."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the description; raises FileInvalid naming the file and what is wrong."""
        fields = read_object(path)
        try:
            if fields.get("format_version") != FORMAT_VERSION:
                found = shown(fields.get("format_version"))
                raise ValueError(f"format {found} instead of {FORMAT_VERSION}")
            manifest = from_fields(cls, fields)
            manifest.check()
        except ValueError as error:
            raise FileInvalid(
                f"{path} is not a neighbour model of this version: {error}; add it again with "
                "tandem models add-neighbours"
            ) from error
        return manifest

    def check(self) -> None:
        """Raises ValueError unless this release can serve the model."""
        # One item more than these is requested, so that must be within a shard's limit.
        within("pillar_count", self.pillar_count, 1, MAX_RETRIEVE_K - 1)
        within("rerank_k", self.rerank_k, 0, MAX_RETRIEVE_K - 1)
        # Over a cross-encoder a query's neighbours are candidates of a request.
        most = MAX_NEIGHBOUR_CANDIDATE_COUNT if self.rerank_k else MAX_RETRIEVE_K
        within("neighbour_count", self.neighbour_count, 1, most)
        within("affinity_sharpness", self.affinity_sharpness, 0, 1_000)
        if self.text_query.node_count == self.image_query.node_count:
            raise ValueError(f"both directions have {self.text_query.node_count} nodes")
        for direction in (self.text_query, self.image_query):
            within("item_count", direction.item_count, 1, MAX_NEIGHBOUR_CANDIDATE_COUNT)
            # One masked node at most, which tells two directions apart.
            low = 1 + direction.item_count
            within("node_count", direction.node_count, low, low + 1)
            if direction.threshold_nodes is not None:
                within("threshold_nodes", direction.threshold_nodes, 1, 1_000_000)

    def direction(self, *, is_text_query: bool) -> NeighbourDirection:
        """Returns the description of the graphs of a text, or of an image."""
        return self.text_query if is_text_query else self.image_query

    def describe(self) -> NeighbourModelDescription:
        return NeighbourModelDescription(
            fingerprint=self.fingerprint,
            base_fingerprint=self.base_fingerprint,
            text_query_item_count=self.text_query.item_count,
            image_query_item_count=self.image_query.item_count,
            pillar_count=self.pillar_count,
            neighbour_count=self.neighbour_count,
            includes_query_pillar=self.includes_query_pillar,
            rerank_k=self.rerank_k,
        )

    def write(self, path: Path) -> None:
        write_text_whole(path, json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    def verify(self, repository: Path) -> None:
        """Raises ValueError unless the repository's files match the description."""
        path = model_file(repository, NEIGHBOUR_MODEL)
        for file in (config_file(repository, NEIGHBOUR_MODEL), path):
            if not file.is_file():
                raise ValueError(f"{file} is missing; add the neighbour model again")
        if sha256(path.read_bytes()).hexdigest() != self.sha256:
            raise ValueError(
                f"{path} is not the file that {NEIGHBOURS_NAME} describes; add the neighbour model "
                "again"
            )


def neighbours_file(repository: Path) -> Path:
    return repository / NEIGHBOURS_NAME


def neighbour_manifest_of(repository: Path) -> NeighbourModelManifest | None:
    """Returns the repository's neighbour model; None if it has none; raises FileInvalid."""
    path = neighbours_file(repository)
    return NeighbourModelManifest.read(path) if path.exists() else None
