"""Takes the published weights of a region model by name, and rejects what is missing or unused.

The authors' own loaders skip both with a line in a log, which has left encoders at random weights.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.weights import Sources, bert_layers, both_ends, wanted_weights
from tandem.modeling.stored_weights import weight_faults, weights_like


def bert_sources(layers: int, **parts: str) -> dict[str, tuple[str, ...]]:
    """Returns the sources of words, positions, types and layers, and of other parts by name."""
    sources: dict[str, tuple[str, ...]] = bert_layers(range(layers))
    for table in ("word", "position", "token_type"):
        sources[f"{table}.weight"] = (f"embeddings.{table}_embeddings.weight",)
    for own, published in parts.items():
        sources |= both_ends(own, published)
    return sources


def layer_count(weights: Mapping[str, Tensor], pattern: str) -> int:
    """Returns one more than the highest number in the first group of a name's match."""
    found = [re.match(pattern, name) for name in weights]
    return 1 + max((int(match[1]) for match in found if match), default=-1)


def fill(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    sources: Sources,
    dropped: re.Pattern[str],
    folder: PublishedFolder,
) -> None:
    """Copies the weights into the model, which is then in evaluation mode.

    `dropped` are the names of weights that the model does not need. Raises
    PublishedCheckpointInvalid for a weight that is missing, unused or of another shape.
    """
    own = model.state_dict()
    assert own.keys() == sources.keys(), sorted(own.keys() ^ sources.keys())
    kept = {name: each for name, each in weights.items() if not dropped.match(name)}
    if faults := weight_faults(weights_like(kept), wanted_weights(own, sources)):
        raise folder.refused(
            f"the weights are not those of this family: {'; '.join(faults)}; take configuration "
            "and weights of one checkpoint"
        )
    taken = {name: torch.cat([kept[part] for part in parts]) for name, parts in sources.items()}
    model.load_state_dict(taken)
    model.eval().requires_grad_(False)
