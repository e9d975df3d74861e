"""Configures LeaPRR as its paper describes it, or as its published code runs.

The two differ in more than sizes, so each difference is a field. Where the paper is silent, its
profile has the code's value. One difference is not a field, because it has no effect: for the
affinity, the code counts images and texts separately and the paper counts their union, but no image
and text have the same number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

from tandem.platform.files.field_settings import field_settings

Profile = Literal["paper", "code"]
PillarRank = Literal["top", "bottom", "random"]
PillarModality = Literal["both", "inter", "intra"]


@dataclass(frozen=True, slots=True)
class LeaprrConfig:
    """Configures graphs, networks, losses and training."""

    image_query_neighbours: int
    """Texts in an image's graph, without the image: 32 in the paper, 31 in the code."""
    text_query_neighbours: int
    """Images in a text's graph, without the text: 8 in the paper, 7 in the code."""
    fixed_threshold_nodes: tuple[int, int] | None
    """The code's n of the affinity threshold lambda / n for an image's and a text's graph, which
    do not follow the graph; by default the graph's nodes."""
    width: int | None
    """Width of the nodes; None keeps the pillars' own, without a projection, as in equation 5."""
    head_count: int
    """Attention heads: 1 in equation 5, 24 in the code."""
    normalises_pillars: bool
    """Whether each half of a node's pillars has a layer norm."""
    is_pre_norm: bool
    """Whether blocks are pre-norm transformer blocks with scaled attention. Otherwise they are
    equations 5 and 6: attention without a scale, and one residual after the MLP."""
    reconstructs: bool
    """Whether the network has the layer of the reconstruction loss."""
    contrastive_temperature: float
    """1 in the paper; in the code 2, which its option does not reach."""
    scores_query: bool
    """Whether the query's own node, of score 1, is a positive among the scored nodes."""
    skips_unanswered: bool
    """Whether a query without an answer among its neighbours is left out of a loss. The code keeps
    it, and then pushes every neighbour away from the query."""
    has_raw_hinge: bool
    """Whether scores below the smallest raw similarity to the first pillar are penalised."""
    trains_mapped_graphs: bool
    """Whether mapped graphs have the contrastive loss and hinge too, not only the alignment. They
    have no triplet loss, as in the code."""
    learning_rate: float
    """0.01 in the paper; the code scales it by its batch of 512 over 256."""
    decays_learning_rate: bool
    """Whether the rate decays to 0 as a cosine, step by step."""
    averages_whole_matrix: bool
    """Whether both directions' scores are averaged over all pairs, neighbours or not. Otherwise
    each direction reorders its own neighbours."""

    pillar_count: int = 64
    """Pillars of each modality."""
    pillar_rank: PillarRank = "top"
    """Which entries of a query's lists are pillars: Table 2 compares them."""
    pillar_modality: PillarModality = "both"
    """Whether only inter or only intra pillars are read, the others as 0: Table 2 compares them."""
    contrastive_weight: float = 1.0
    """Weight of the contrastive loss; Table 3 compares with 0, as for the next two."""
    triplet_weight: float = 1.0
    alignment_weight: float = 1.0
    """Weight of the alignment with mapped graphs."""
    includes_query_pillar: bool = True
    """Whether a query may be its own pillar. Neither source says; lists of the nearest have it."""
    affinity_neighbours: int = 10
    """Nearest images and nearest texts that affinity compares; only the code states it."""
    affinity_sharpness: float = 0.8
    """Lambda of the affinity threshold."""
    layer_count: int = 2
    mlp_ratio: int = 4
    margin: float = 0.2
    """Margin of the triplet loss."""
    reconstruction_weight: float = 0.0
    """Weight of the reconstruction loss."""
    momentum: float = 0.9
    batch_size: int = 512
    """Texts of a step."""

    def __post_init__(self) -> None:
        """Raises ValueError for fields of which no network can be made."""
        for field in fields(self):
            if field.type is int and getattr(self, field.name) < 1:
                raise ValueError(
                    f"{field.name} is {getattr(self, field.name)}; it must be 1 or more"
                )
        if self.reconstruction_weight and not self.reconstructs:
            raise ValueError("reconstruction_weight needs reconstructs, the layer of that loss")
        width = self.width or 2 * self.pillar_count
        if width % self.head_count:
            raise ValueError(f"{self.head_count} heads do not divide a width of {width}")


_PAPER_AND_CODE: Final[Mapping[str, tuple[Any, Any]]] = {
    "image_query_neighbours": (32, 31),
    "text_query_neighbours": (8, 7),
    "fixed_threshold_nodes": (None, (32, 8)),
    "width": (None, 768),
    "head_count": (1, 24),
    "normalises_pillars": (False, True),
    "is_pre_norm": (False, True),
    "reconstructs": (False, True),
    "contrastive_temperature": (1.0, 2.0),
    "scores_query": (False, True),
    "skips_unanswered": (True, False),
    "has_raw_hinge": (False, True),
    "trains_mapped_graphs": (False, True),
    "learning_rate": (0.01, 0.02),
    "decays_learning_rate": (False, True),
    "averages_whole_matrix": (False, True),
}


def leaprr_config(profile: Profile) -> LeaprrConfig:
    """Returns the configuration of the published paper or code."""
    return LeaprrConfig(**{name: of[profile == "code"] for name, of in _PAPER_AND_CODE.items()})


def with_settings(config: LeaprrConfig, settings: Sequence[str]) -> LeaprrConfig:
    """Returns the configuration with each `field=value` applied; raises ValueError.

    >>> with_settings(leaprr_config("code"), ["width=none", "head_count=1"]).width is None
    True
    """
    return replace(config, **field_settings(LeaprrConfig, settings, "LeaPRR"))
