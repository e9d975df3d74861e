"""Computes layers of a GraphNetwork with fewer reads of weights, for networks that learn no more.

A graph has few nodes, so most of a layer's time goes into reading its weights. Shapes: B graphs, V
nodes, F features, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
