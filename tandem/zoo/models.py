"""Names the networks of the zoo."""

from collections.abc import Callable, Mapping
from typing import Final

from tandem.zoo.config import ZooConfig, ZooName
from tandem.zoo.network import ZooNetwork
from tandem.zoo.vse_pp import VsePlusPlus

NETWORKS: Final[Mapping[ZooName, Callable[[ZooConfig], ZooNetwork]]] = {
    "vse_pp": VsePlusPlus,
}


def network_of(config: ZooConfig) -> ZooNetwork:
    """Returns the network with weights from torch's generator."""
    return NETWORKS[config.model](config)
