"""The network: what reaches a score, and attention by hand."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose

from tandem.lab.neighbours.leaprr.config import LeaprrConfig, Profile, leaprr_config
from tandem.lab.neighbours.leaprr.network import GraphBlock, GraphNetwork

each_profile = pytest.mark.parametrize("profile", ["paper", "code"])


def _config(profile: Profile) -> LeaprrConfig:
    config = replace(leaprr_config(profile), pillar_count=3)
    return replace(config, width=8, head_count=2) if profile == "code" else config


def _network(profile: Profile) -> GraphNetwork:
    torch.manual_seed(1)
    network = GraphNetwork(_config(profile))
    for parameter in network.parameters():  # larger than at the start, so that all have a say
        torch.nn.init.normal_(parameter, std=0.5)
    return network


def _graphs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    affinity = torch.rand(2, 5, 5).softmax(-1)
    return torch.randn(2, 5, 6), affinity, torch.ones(2, 5, dtype=torch.bool)


@each_profile
def test_a_node_that_is_not_valid_has_no_influence(profile: Profile) -> None:
    """Whatever its features are; a valid one has."""
    network = _network(profile)
    features, affinity, valid = _graphs()
    affinity[:, :, 4] = affinity[:, 4] = 0
    changed = features.clone()
    changed[:, 4] = 100 * torch.randn(2, 6)
    masked = valid.clone()
    masked[:, 4] = False

    scores, _ = network(features, affinity, masked)

    assert_allclose(
        scores[:, :4].detach(), network(changed, affinity, masked)[0][:, :4].detach(), atol=1e-6
    )
    without = network(features[:, :4], affinity[:, :4, :4], valid[:, :4])[0]
    assert_allclose(scores[:, :4].detach(), without.detach(), atol=1e-5)
    control = network(features, affinity, valid)[0] - network(changed, affinity, valid)[0]
    assert control[:, 1:4].abs().max() > 1e-4


@each_profile
def test_permuted_items_have_permuted_scores(profile: Profile) -> None:
    network = _network(profile)
    features, affinity, valid = _graphs()
    order = [0, 3, 1, 4, 2]

    scores, _ = network(features, affinity, valid)

    permuted, _ = network(features[:, order], affinity[:, order][:, :, order], valid)
    assert_allclose(permuted.detach(), scores[:, order].detach(), atol=1e-5)


@each_profile
def test_the_query_scores_one_and_others_are_cosines(profile: Profile) -> None:
    scores, _ = _network(profile)(*_graphs())

    assert_allclose(scores[:, 0].detach(), [1, 1], atol=1e-6)
    assert scores.abs().max() <= 1 + 1e-6


def test_affinity_is_averaged_with_attention_by_hand() -> None:
    """Queries of 0 attend evenly, so the weights are (1/2 + 1) / 2 and (1/2 + 0) / 2."""
    block = GraphBlock(width=2, head_count=1, mlp_ratio=1, is_pre_norm=False)
    with torch.no_grad():
        block._qkv.weight.zero_()[4:] = torch.eye(2)
        block._qkv.bias.zero_()
    nodes = torch.eye(2)[None]

    valid = torch.ones(1, 2, dtype=torch.bool)
    attended = block._attended(block._qkv(nodes), torch.eye(2)[None], valid)

    assert_allclose(attended.detach()[0], [[0.75, 0.25], [0.25, 0.75]])


@pytest.mark.parametrize(("is_pre_norm", "scale"), [(True, 0.5), (False, 1.0)])
def test_only_pre_norm_attention_is_scaled(is_pre_norm: bool, scale: float) -> None:
    """Without affinity it is half of torch's own, with 1/√4 or, as equation 5 has it, without."""
    torch.manual_seed(0)
    block = GraphBlock(width=4, head_count=1, mlp_ratio=1, is_pre_norm=is_pre_norm)
    block._output = torch.nn.Identity()
    nodes, valid = 3 * torch.randn(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)

    attended = block._attended(block._qkv(nodes), torch.zeros(1, 3, 3), valid)

    query, key, value = block._qkv(nodes).chunk(3, -1)
    expected = F.scaled_dot_product_attention(query, key, value, scale=scale) / 2
    assert_allclose(attended.detach(), expected.detach(), atol=1e-6)


@each_profile
def test_networks_for_inference_score_the_same(profile: Profile) -> None:
    """With weights and features of any size, masked nodes, and a graph whose nodes are all 0."""
    network = _network(profile)
    features, affinity, valid = _graphs()
    valid[1, 3:] = False
    learned = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    faster = network.for_inference()

    for scale in (0.0, 0.01, 1.0, 100.0):
        expected, expected_nodes = network(scale * features, affinity, valid)
        scores, nodes = faster(scale * features, affinity, valid)
        assert_allclose(scores, expected.detach(), atol=1e-5)
        assert_allclose(nodes, expected_nodes.detach(), rtol=1e-4, atol=1e-3)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, learned[name])
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_the_folded_layer_is_read() -> None:
    """The control of the test above: its weights reach the scores, and the first layer's do not."""
    network, graphs = _network("code"), _graphs()
    faster = network.for_inference()
    before = faster(*graphs)[0]

    for name, tensor in faster.named_parameters():
        if name == "_blocks.0._qkv.weight":
            tensor.zero_()
    assert torch.equal(faster(*graphs)[0], before)
    dict(faster.named_buffers())["_folded_qkv._weight"].zero_()
    assert (faster(*graphs)[0] - before).abs().max() > 1e-4
