"""Reasons over a query's graph and scores its nodes (Qu et al. 2023, section 3.4).

Attention within a graph is averaged with neighbour affinity, the same in each head and layer. A
graph has few nodes, so most of a layer's time goes into reading its weights: networks that learn no
more have layers with fewer reads.
Shapes: B graphs, V nodes, F features, D width, H heads.
"""

import copy
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.lab.neighbours.leaprr.config import LeaprrConfig

_INIT_STD = 0.02


class GraphNetwork(nn.Module):
    """Turns a graph's similarities to pillars into scores of its nodes; one a direction."""

    def __init__(self, config: LeaprrConfig) -> None:
        """Makes the layers, with weights from torch's generator."""
        super().__init__()
        feature_count = 2 * config.pillar_count
        width = config.width or feature_count
        self._norms = nn.ModuleList(
            nn.LayerNorm(config.pillar_count) if config.normalises_pillars else nn.Identity()
            for _ in range(2)
        )
        self._projection = nn.Linear(feature_count, width) if config.width else nn.Identity()
        self._blocks = nn.ModuleList(
            GraphBlock(width, config.head_count, config.mlp_ratio, config.is_pre_norm)
            for _ in range(config.layer_count)
        )
        self._reconstruction = nn.Linear(width, feature_count) if config.reconstructs else None
        self._folded_qkv: FoldedQkv | None = None
        self.apply(_initialise)

    def forward(
        self, features_BVF: Tensor, affinity_BVV: Tensor, valid_BV: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns scores [B, V], cosines with node 0, and nodes [B, V, D].

        A node that is not valid has no influence on the others; its own score means nothing.
        """
        halves = features_BVF.chunk(2, dim=-1)
        pillars = [norm(half) for norm, half in zip(self._norms, halves, strict=True)]
        features_BVF = torch.cat(pillars, dim=-1)
        nodes_BVD = self._projection(features_BVF)
        qkv_BVE = None if self._folded_qkv is None else self._folded_qkv(features_BVF, nodes_BVD)
        for block in self._blocks:
            nodes_BVD = block(nodes_BVD, affinity_BVV, valid_BV, qkv_BVE)
            qkv_BVE = None  # of the first block alone
        return F.cosine_similarity(nodes_BVD[:, :1], nodes_BVD, dim=-1), nodes_BVD

    def for_inference(self) -> Self:
        """Returns a copy that computes the same faster, up to rounding, and cannot learn."""
        network = copy.deepcopy(self)
        network.requires_grad_(requires_grad=False)
        projection = network._projection  # noqa: SLF001  a copy of itself
        blocks = [each for each in network.modules() if isinstance(each, GraphBlock)]
        if isinstance(projection, nn.Linear):
            network._folded_qkv = blocks[0].folded_qkv(projection)  # noqa: SLF001
        for block in blocks:
            block.transpose_mlp()
        return network

    def reconstruction(self, nodes_BVD: Tensor) -> Tensor:
        """Returns [B, V, F]: features from nodes, by a network that `reconstructs`."""
        assert self._reconstruction is not None
        return self._reconstruction(nodes_BVD)


class GraphBlock(nn.Module):
    """Attends within graphs by (softmax(Q Kᵀ) + A) / 2, then applies an MLP."""

    def __init__(self, width: int, head_count: int, mlp_ratio: int, is_pre_norm: bool) -> None:
        """Makes the layers: those of a pre-norm transformer, or of equations 5 and 6."""
        super().__init__()
        self._head_count = head_count
        self._is_pre_norm = is_pre_norm
        self._qkv = nn.Linear(width, 3 * width)
        self._output = nn.Linear(width, width) if is_pre_norm else nn.Identity()
        self._mlp: nn.Module = nn.Sequential(
            nn.Linear(width, mlp_ratio * width), nn.GELU(), nn.Linear(mlp_ratio * width, width)
        )
        self._attention_norm = nn.LayerNorm(width) if is_pre_norm else nn.Identity()
        self._mlp_norm = nn.LayerNorm(width) if is_pre_norm else nn.Identity()

    def forward(
        self,
        nodes_BVD: Tensor,
        affinity_BVV: Tensor,
        valid_BV: Tensor,
        qkv_BVE: Tensor | None = None,
    ) -> Tensor:
        """Returns [B, V, D]; `qkv_BVE` [B, V, 3 D] is given where it is known already."""
        if qkv_BVE is None:
            qkv_BVE = self._qkv(self._attention_norm(nodes_BVD))
        attended_BVD = self._attended(qkv_BVE, affinity_BVV, valid_BV)
        if not self._is_pre_norm:
            return nodes_BVD + self._mlp(attended_BVD)
        nodes_BVD = nodes_BVD + attended_BVD
        return nodes_BVD + self._mlp(self._mlp_norm(nodes_BVD))

    def folded_qkv(self, projection: nn.Linear) -> "FoldedQkv | None":
        """Returns what gives this block's qkv from the features of `projection`.

        None for a block without a norm before its attention.
        """
        if not isinstance(self._attention_norm, nn.LayerNorm):
            return None
        return FoldedQkv(projection, self._attention_norm, self._qkv)

    def transpose_mlp(self) -> None:
        """Makes the MLP one that is faster for few nodes."""
        up, down = (layer for layer in self._mlp.children() if isinstance(layer, nn.Linear))
        self._mlp = TransposedMlp(up, down)

    def _attended(self, qkv_BVE: Tensor, affinity_BVV: Tensor, valid_BV: Tensor) -> Tensor:
        batch, count, _ = qkv_BVE.shape
        heads = qkv_BVE.view(batch, count, 3, self._head_count, -1)
        query_BHVD, key_BHVD, value_BHVD = heads.permute(2, 0, 3, 1, 4).unbind(0)
        logits_BHVV = query_BHVD @ key_BHVD.transpose(-1, -2)
        if self._is_pre_norm:
            logits_BHVV = logits_BHVV / query_BHVD.shape[-1] ** 0.5
        logits_BHVV = logits_BHVV.masked_fill(~valid_BV[:, None, None, :], -torch.inf)
        mixed_BHVV = (logits_BHVV.softmax(-1) + affinity_BVV[:, None]) / 2
        return self._output((mixed_BHVV @ value_BHVD).transpose(1, 2).flatten(2))


class FoldedQkv(nn.Module):
    """Gives a block's queries, keys and values from the features that its nodes are made of.

    Projection, norm and second projection are one linear map of the features x, except for the
    deviation s of each node W x + b:

        Q (g · centred(W x + b) / s + h) = Q g centred(W) x / s + Q g centred(b) / s + Q h

    so a weight [3 D, F] is read instead of [3 D, D].
    """

    _weight: Tensor
    _shift: Tensor
    _bias: Tensor

    def __init__(self, projection: nn.Linear, norm: nn.LayerNorm, qkv: nn.Linear) -> None:
        """Folds the weights, in double precision."""
        super().__init__()
        self._eps = norm.eps
        with torch.no_grad():
            weight_DF, bias_D = projection.weight.double(), projection.bias.double()
            scaled_ED = qkv.weight.double() * norm.weight.double()
            folded = {
                "_weight": scaled_ED @ (weight_DF - weight_DF.mean(0)),
                "_shift": scaled_ED @ (bias_D - bias_D.mean()),
                "_bias": qkv.weight.double() @ norm.bias.double() + qkv.bias.double(),
            }
        for name, tensor in folded.items():
            self.register_buffer(name, tensor.to(qkv.weight.dtype))

    def forward(self, features_BVF: Tensor, nodes_BVD: Tensor) -> Tensor:
        """Returns [B, V, 3 D]."""
        inverse_BV1 = (nodes_BVD.var(-1, unbiased=False, keepdim=True) + self._eps).rsqrt()
        linear_BVE = F.linear(features_BVF * inverse_BV1, self._weight, self._bias)
        return linear_BVE + inverse_BV1 * self._shift


class TransposedMlp(nn.Module):
    """Computes an MLP of nodes with its first weight as the left factor.

    MKL copies the right factor into another layout first, which for a few nodes is the larger part.
    """

    def __init__(self, up: nn.Linear, down: nn.Linear) -> None:
        super().__init__()
        self._up, self._down = up, down

    def forward(self, nodes_BVD: Tensor) -> Tensor:
        """Returns [B, V, D]."""
        rows_ND = nodes_BVD.flatten(0, 1)
        hidden_HN = F.gelu(torch.addmm(self._up.bias[:, None], self._up.weight, rows_ND.t()))
        return F.linear(hidden_HN.t(), self._down.weight, self._down.bias).view_as(nodes_BVD)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=_INIT_STD)
        nn.init.zeros_(module.bias)
