"""Layers of torch computed by numpy, as references of a network's equations."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float64]


def floats(tensor: Tensor) -> Floats:
    values: Floats = tensor.detach().double().numpy()
    return values


def stirred(network: nn.Module) -> nn.Module:
    """Returns the network with norms that change what they read, as trained ones do."""
    generator = torch.Generator().manual_seed(7)
    for each in network.modules():
        if isinstance(each, nn.BatchNorm1d):
            assert each.running_mean is not None
            assert each.running_var is not None
            for values, low in ((each.weight, 0.5), (each.bias, -0.5), (each.running_mean, -0.5)):
                drawn = torch.rand(values.shape, generator=generator)
                values.data.copy_(low + drawn)
            each.running_var.copy_(0.5 + torch.rand(each.running_var.shape, generator=generator))
    return network


def linear(layer: nn.Module, vector: Floats) -> Floats:
    assert isinstance(layer, nn.Linear)
    out: Floats = floats(layer.weight) @ vector
    return out if layer.bias is None else out + floats(layer.bias)


def normed(layer: nn.Module, vector: Floats) -> Floats:
    """Returns a batch norm's output, by its running statistics."""
    assert isinstance(layer, nn.BatchNorm1d)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    scaled = (vector - floats(layer.running_mean)) / np.sqrt(floats(layer.running_var) + layer.eps)
    out: Floats = scaled * floats(layer.weight) + floats(layer.bias)
    return out


def gru(layer: nn.Module, vectors: list[Floats]) -> list[Floats]:
    """Returns the states of a GRU after each vector (Cho et al. 2014), from zeros."""
    assert isinstance(layer, nn.GRU)
    weights = {name: floats(value) for name, value in layer.named_parameters()}
    state, states = np.zeros(layer.hidden_size), []
    for vector in vectors:
        read = np.split(weights["weight_ih_l0"] @ vector + weights["bias_ih_l0"], 3)
        kept = np.split(weights["weight_hh_l0"] @ state + weights["bias_hh_l0"], 3)
        reset, keep = sigmoid(read[0] + kept[0]), sigmoid(read[1] + kept[1])
        state = (1 - keep) * np.tanh(read[2] + reset * kept[2]) + keep * state
        states.append(state)
    return states


def both_ways(onward: nn.Module, back: nn.Module, vectors: list[Floats]) -> list[Floats]:
    """Returns the mean of a GRU's states and of those of another from the other end."""
    pairs = zip(gru(onward, vectors), gru(back, vectors[::-1])[::-1], strict=True)
    return [(one + other) / 2 for one, other in pairs]


def sigmoid(values: Floats) -> Floats:
    out: Floats = 1 / (1 + np.exp(-values))
    return out


def relu(values: Floats) -> Floats:
    out: Floats = np.maximum(values, 0.0)
    return out


def unit(vector: Floats) -> Floats:
    out: Floats = vector / np.sqrt((vector**2).sum())
    return out


def softmax(values: Floats | list[float]) -> Floats:
    powers = np.exp(np.asarray(values) - np.max(values))
    out: Floats = powers / powers.sum()
    return out


def mean(vectors: list[Floats]) -> Floats:
    out: Floats = np.sum(vectors, axis=0) / len(vectors)
    return out


def mixed(weights: Floats | list[float], vectors: list[Floats]) -> Floats:
    out: Floats = np.sum([w * v for w, v in zip(weights, vectors, strict=True)], axis=0)
    return out


def attended(asking: list[Floats], read: list[Floats], sharpness: float) -> list[Floats]:
    """Returns what each asking vector reads by SCAN's attention, fragment by fragment."""
    fits = [[float(one @ other) for other in read] for one in asking]
    fits = [[max(fit, 0.1 * fit) for fit in row] for row in fits]
    contexts = []
    for row in fits:
        logits = []
        for place, fit in enumerate(row):
            length = np.sqrt(sum(other[place] ** 2 for other in fits)) + 1e-8
            logits.append(sharpness * fit / length)
        contexts.append(mixed(softmax(logits), read))
    return contexts


def read_by(queries: list[Floats], keys: list[Floats], values: list[Floats]) -> list[Floats]:
    scale = np.sqrt(len(queries[0]))
    return [
        mixed(softmax([float(query @ key) / scale for key in keys]), values) for query in queries
    ]


def windowed(windows: nn.ModuleList, words: list[Floats]) -> list[Floats]:
    """Returns each word's features by convolutions over it, its successor, and both neighbours."""
    nothing = np.zeros_like(words[0])
    rows = []
    for place in range(len(words)):
        read = []
        for window, (before, after) in zip(windows, ((0, 0), (0, 1), (1, 1)), strict=True):
            assert isinstance(window, nn.Conv1d)
            assert window.bias is not None
            padded = [nothing] * before + words + [nothing] * after
            total = floats(window.bias)
            for k in range(before + after + 1):
                total = total + floats(window.weight)[:, :, k] @ padded[place + k]
            read.append(relu(total))
        rows.append(np.concatenate(read))
    return rows
