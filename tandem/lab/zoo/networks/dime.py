"""Defines DIME (Qu et al. 2021): four kinds of cells in three layers, and routes between them.

One side's fragments are refined by the other side (i2t: regions by words; t2i: words by regions)
and compared with its whole. The published loss also draws the routes of two pairs together where a
frozen BERT finds their sentences alike; that term is left out here.

Shapes: P pictures, C captions (X stands for P or 1), B batch, T words, R regions, L fragments that
are refined, K cells, J next cells, D width.
"""

from typing import Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import Parts, ZooNetwork
from tandem.lab.zoo.networks.camp import read_by
from tandem.lab.zoo.networks.cross_attention import attended
from tandem.lab.zoo.networks.word_convolutions import WordConvolutions
from tandem.lab.zoo.region_inputs import UNREAD, RegionInputs, mean_of, projection, unit
from tandem.lab.zoo.word_readers import word_reader

_SHARPNESS: Final = {"i2t": 4.0, "t2i": 9.0}
_CELL_COUNT: Final = 4
_FIRST_ROUTE: Final = 1.5
_CLOSED: Final = 1e-4

Side = tuple[Tensor, Tensor, Tensor]
"""Fragments, the whole, and which fragments count; [P, 1, ...] or [X, C, ...]."""


class Dime(ZooNetwork):
    """Refines one side's fragments by the other's, along routes that a pair chooses."""

    def __init__(self, config: ZooConfig, refining: Literal["i2t", "t2i"] = "i2t") -> None:
        super().__init__()
        width = config.width
        self.refining = refining
        self.regions = RegionInputs(config.inputs)
        self.project = projection(self.regions.feature_width, width)
        self.image_norm = nn.BatchNorm1d(width) if refining == "t2i" else nn.Identity()
        self.words = word_reader(config, is_bidirectional=True, projects=False)
        self.windows = WordConvolutions(self.words.width, width)
        self.text_project = nn.Linear(self.words.width, width)
        self.window_project = nn.Linear(3 * width, width)
        sharpness = _SHARPNESS[refining]
        self.layers = nn.ModuleList(
            CellLayer(width, count, sharpness) for count in (_CELL_COUNT, _CELL_COUNT, 1)
        )
        self.norm = nn.BatchNorm1d(width)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        words_BTW = self.words(ids_BT, mask_BT)
        features_BTE, highest_BE = self.windows(words_BTW, mask_BT)
        own_BTD = self.text_project(words_BTW)
        whole_BD = self.window_project(highest_BE) + mean_of(own_BTD, mask_BT)
        return unit(self.window_project(features_BTE) + own_BTD), unit(whole_BD), mask_BT

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        regions_BRD = self.project(self.regions(tokens_BRI))
        whole_BD = self.image_norm(mean_of(regions_BRD, mask_BR))
        return unit(regions_BRD), unit(whole_BD), mask_BR

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        """Returns the cosines of the refined side with the other's whole, [P, C]."""
        picture, text = _side([each[:, None] for each in images]), _side(texts)
        own, other = (picture, text) if self.refining == "i2t" else (text, picture)
        fragments, _, counts = own
        states = [fragments] * _CELL_COUNT
        for layer in self.layers:
            states = layer(states, counts, other)
        refined_PCLD = states[0]
        normed_PCLD = self.norm(refined_PCLD.flatten(0, -2)).view_as(refined_PCLD)
        counts_PCL = counts.expand(normed_PCLD.shape[:-1])
        highest_PCD = normed_PCLD.masked_fill(counts_PCL[..., None] == 0, UNREAD).amax(-2)
        return (unit(mean_of(normed_PCLD, counts_PCL) + highest_PCD) * other[1]).sum(-1)


class CellLayer(nn.Module):
    """Holds a cell of each kind; routes weigh what each gives to each cell of the next layer."""

    def __init__(self, width: int, next_count: int, sharpness: float) -> None:
        super().__init__()
        self.next_count, self.sharpness = next_count, sharpness
        self.routers = nn.ModuleList(CellRouter(width, next_count) for _ in range(_CELL_COUNT))
        self.guide = nn.Linear(width, width)
        self.attend = FragmentAttention(width)
        self.refine = Refinement(width)

    def forward(self, states: list[Tensor], counts: Tensor, other: Side) -> list[Tensor]:
        """Returns the fragments for each cell of the next layer, [P, C, L, D] each."""
        fragments, whole, is_fragment = other
        context = attended(states[3], fragments, counts, is_fragment, self.sharpness)
        cells = [
            torch.relu(states[0]),
            self._guided(states[1], whole, counts),
            self.attend(states[2], counts),
            self.refine(states[3], context),
        ]
        routes = [router(state, counts) for router, state in zip(self.routers, states, strict=True)]
        if self.next_count == 1:
            return [_last(states, cells, routes)]
        # Of what a next cell receives, the shares of the present cells have sum 1.
        total = torch.stack(routes).sum(0)
        shares = [route / (total + 1e-8) for route in routes]
        is_closed = total < _CLOSED
        return [
            _mixed(cells, [share[..., number] for share in shares], is_closed[..., number])
            for number in range(self.next_count)
        ]

    def _guided(self, fragments: Tensor, whole: Tensor, counts: Tensor) -> Tensor:
        """Returns (1 + l2(W l * g)) * l; the length is over fragments."""
        fits = self.guide(fragments) * whole[..., None, :] * counts[..., None].to(whole.dtype)
        return (1 + F.normalize(fits, dim=-2)) * fragments


class CellRouter(nn.Module):
    """Chooses how open the route to each next cell is, from the mean of the fragments."""

    def __init__(self, width: int, next_count: int) -> None:
        super().__init__()
        self.hidden, self.route = nn.Linear(width, 2 * width), nn.Linear(2 * width, next_count)
        nn.init.constant_(self.route.bias, _FIRST_ROUTE)

    def forward(self, fragments: Tensor, counts: Tensor) -> Tensor:
        """Returns [..., J], 0 to 1."""
        read = torch.relu(self.hidden(mean_of(fragments, counts)))
        return torch.relu(torch.tanh(self.route(read)))


class FragmentAttention(nn.Module):
    """Lets the fragments of one side attend to each other, without norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head_count = 16 if width % 16 == 0 else 8
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, fragments: Tensor, counts: Tensor) -> Tensor:
        query, key, value = (
            layer(fragments).unflatten(-1, (self.head_count, -1)).transpose(-2, -3)
            for layer in (self.query, self.key, self.value)
        )
        read = read_by(query, key, value, counts[..., None, :]).transpose(-2, -3).flatten(-2)
        states = fragments + read
        fed: Tensor = states + self.feed_forward(states)
        return fed


class Refinement(nn.Module):
    """Scales and shifts a fragment by what it read of the other side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift, self.first, self.second = (
            nn.Linear(width, width) for _ in range(4)
        )

    def forward(self, fragments: Tensor, context: Tensor) -> Tensor:
        """Returns q + W2 relu(W1 (q tanh(W ctx) + W ctx))."""
        moved = fragments * torch.tanh(self.scale(context)) + self.shift(context)
        refined: Tensor = fragments + self.second(torch.relu(self.first(moved)))
        return refined


def _side(parts: Parts | list[Tensor]) -> Side:
    fragments, whole, counts = parts
    return fragments, whole, counts


def _mixed(cells: list[Tensor], shares: list[Tensor], is_closed: Tensor) -> Tensor:
    """Returns the sum of cells by their shares; where no route is open, the identity cell."""
    mixed = is_closed[..., None, None].to(cells[0].dtype) * cells[0]
    for cell, share in zip(cells, shares, strict=True):
        mixed = mixed + share[..., None, None] * cell
    return mixed


def _last(states: list[Tensor], cells: list[Tensor], routes: list[Tensor]) -> Tensor:
    """Returns the weighted mean of the cells; one whose route is closed gives its input."""
    total = torch.zeros((), dtype=cells[0].dtype, device=cells[0].device)
    weight = total
    for state, cell, route in zip(states, cells, routes, strict=True):
        closed = (route < _CLOSED / _CELL_COUNT).to(cell.dtype)
        total = total + route[..., None] * cell + closed[..., None] * state
        weight = weight + route + closed
    return total / weight[..., None]
