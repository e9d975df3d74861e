"""Names the networks of the zoo."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tandem.zoo.config import ZooConfig, ZooName
from tandem.zoo.network import ZooNetwork
from tandem.zoo.networks.camera import Camera
from tandem.zoo.networks.camp import Camp, GatedCamp
from tandem.zoo.networks.dime import Dime
from tandem.zoo.networks.saem import Saem
from tandem.zoo.networks.scan import Scan
from tandem.zoo.networks.sgraf import Sgraf
from tandem.zoo.networks.vse_infinity import VseInfinity
from tandem.zoo.networks.vse_pp import VsePlusPlus
from tandem.zoo.networks.vsrn import Vsrn

NETWORKS: Final[Mapping[ZooName, Callable[[ZooConfig], ZooNetwork]]] = {
    "vse_pp": VsePlusPlus,
    "vse_infinity": VseInfinity,
    "scan_t2i": partial(Scan, asking="t2i"),
    "scan_i2t": partial(Scan, asking="i2t"),
    "scan_t2i_lse": partial(Scan, asking="t2i", pooling="lse"),
    "scan_i2t_lse": partial(Scan, asking="i2t", pooling="lse"),
    "sgr": partial(Sgraf, reading="sgr"),
    "saf": partial(Sgraf, reading="saf"),
    "camp": Camp,
    "camp_gated": GatedCamp,
    "vsrn": Vsrn,
    "saem": Saem,
    "camera": Camera,
    "dime_i2t": partial(Dime, refining="i2t"),
    "dime_t2i": partial(Dime, refining="t2i"),
}


def network_of(config: ZooConfig) -> ZooNetwork:
    """Returns the network with weights from torch's generator."""
    return NETWORKS[config.model](config)
