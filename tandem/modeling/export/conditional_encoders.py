"""Selects among encoders by the lengths of their inputs, in a form that torch.export records.

A trace of SeparateEncoders or TowerRoute records only one branch, and torch.export does not record
Python's `if` as TorchScript does. It records `torch.cond`, also if the lengths decide.

Shapes: B batch, T text tokens, R image tokens, D token width, E embedding width.
"""

import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from tandem.modeling.separate_encoders import SeparateEncoders
from tandem.modeling.towers.two_towers import TowerRoute, TwoTowers


class ConditionalEncoders(nn.Module):
    """Gives one branch's answer for a pair, and another's for a single side."""

    def __init__(self, pair: nn.Module, alone: nn.Module) -> None:
        super().__init__()
        self.pair, self.alone = pair, alone

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns embedding and match logit of each row, as SeparateEncoders.forward."""
        is_pair = (input_ids.shape[1] > 1) & (image_tokens.shape[1] > 1)
        inputs = (input_ids, text_mask, image_tokens, image_mask)
        chosen: tuple[Tensor, Tensor] = torch.cond(is_pair, self.pair, self.alone, inputs)
        return chosen


def conditional(module: nn.Module) -> nn.Module:
    """Returns the module itself, or an equal one that torch.export can record."""
    if isinstance(module, SeparateEncoders):
        return ConditionalEncoders(module.cross_encoder, module.bi_encoder)
    if isinstance(module, TwoTowers):
        route = module.route()
        return ConditionalEncoders(route.pair, _OneSide(route))
    return module


class _OneSide(nn.Module):
    """Embeds an image by its tower, or else a text; the logit is 0."""

    def __init__(self, route: TowerRoute) -> None:
        super().__init__()
        self.text, self.image = _Embedding(route.text, 0), _Embedding(route.image, 2)

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs = (input_ids, text_mask, image_tokens, image_mask)
        chosen: tuple[Tensor, Tensor] = torch.cond(
            image_tokens.shape[1] > 1, self.image, self.text, inputs
        )
        return chosen


class _Embedding(nn.Module):
    """Embeds by a tower, which reads the input of a number and its mask after it."""

    def __init__(self, tower: nn.Module, first_input: int) -> None:
        super().__init__()
        self.tower, self.first_input = tower, first_input

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        embedding_BE = self.tower(*inputs[self.first_input : self.first_input + 2])[0]
        return embedding_BE, torch.zeros_like(embedding_BE[:, :1])


def without_symbolic_sums(program: ExportedProgram) -> ExportedProgram:
    """Returns the program with sums of lengths written as additions, also in its branches.

    torch writes the number of text and image tokens in a branch as `sym_sum`, which its own
    archive cannot hold (2.13).
    """
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in list(module.graph.nodes):
                if node.op == "call_function" and node.target is torch.sym_sum:
                    _add_up(module.graph, node)
            module.recompile()
    return program


def _add_up(graph: Graph, node: Node) -> None:
    terms: Any = node.args[0]
    total = terms[0]
    with graph.inserting_before(node):
        for term in terms[1:]:
            added = graph.call_function(operator.add, (total, term))
            added.meta["val"] = _value(total) + _value(term)
            total = added
    node.replace_all_uses_with(total)
    graph.erase_node(node)


def _value(term: Node | int) -> Any:  # noqa: ANN401  a number, or torch's symbol for one
    return term.meta["val"] if isinstance(term, Node) else term
