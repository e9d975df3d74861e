"""Settings of services as `tandem up` finds them in its environment: handed on, or refused."""

import difflib
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tandem.chassis.guard import AccessSettings
from tandem.chassis.settings import SettingsError, load
from tandem.chassis.side_doors import SideDoors
from tandem.chassis.tls import TlsSettings
from tandem.chassis.tracing import check_trace_settings
from tandem.local.start_refused import StartRefused

SERVICES = ("orchestrator", "encoder", "index", "rerank")
# What a stack of one machine is made of, and what to say to it instead.
WIRED: Mapping[str, str] = {
    "ADDRESS": "--free-ports takes other ports",
    "METRICS_PORT": "--free-ports takes other ports",
    "TRITON_ADDRESS": "--free-ports takes other ports",
    "TRITON_TLS": "--tls shows certificates before Triton",
    "MODEL_REPOSITORY": "--model-repository names it",
    "STORE_PATH": "--data names the folder of all",
    "SHARD_NUMBER": "--shards says how many there are",
    "SHARD_COUNT": "--shards says how many there are",
    "SHARD_MAP_VERSION": "--shards says how many there are",
    "ENCODER_ADDRESS": "--free-ports takes other ports",
    "INDEX_ADDRESSES": "--shards says how many there are",
    "RERANK_ADDRESSES": "--shards says how many there are",
}
# Alike after the prefix, which all have in common: a slip of the hand, and not another program's.
_SLIP_RATIO = 0.75
_PREFIX_SLIP_RATIO = 0.93
# What Kubernetes sets in every pod for each service of its namespace.
_SERVICE_LINK = re.compile(
    r".+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """Variables that begin alike."""

    prefix: str
    settings_class: type[Any]

    @property
    def names(self) -> list[str]:
        """What follows the prefix, of each."""
        return [field.name.upper() for field in fields(self.settings_class)]


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """What the environment says of the services."""

    variables: Mapping[str, str]
    """Handed on."""
    notes: Sequence[str]
    """A line for each variable that looks like a setting and is another program's."""


def service_groups() -> list[SettingsGroup]:
    """Returns the settings that each service has of its own, by its prefix."""
    groups = []
    for service in SERVICES:
        # By name, as the service itself is run: nothing here stands on a service's code.
        module = importlib.import_module(f"{service}_svc.settings")
        groups.append(
            SettingsGroup(f"{service.upper()}_", getattr(module, f"{service.title()}Settings"))
        )
    return groups


def shared_groups() -> list[SettingsGroup]:
    """Returns the settings that every service has."""
    return [
        SettingsGroup("TLS_", TlsSettings),
        SettingsGroup("ACCESS_", AccessSettings),
        SettingsGroup("DOOR_", SideDoors),
    ]


def given_settings(environ: Mapping[str, str]) -> GivenSettings:
    """Returns the services' settings in an environment.

    Raises StartRefused with a line for each that is wrong: of another type, misspelt, or of what
    `tandem up` sets itself. A name that begins like a setting's and is like none is passed over.
    """
    groups = [*service_groups(), *shared_groups()]
    variables: dict[str, str] = {}
    faults: list[str] = []
    notes: list[str] = []
    for variable in sorted(environ):
        group = next((each for each in groups if variable.startswith(each.prefix)), None)
        if group is None:
            notes += _prefix_slips(variable, groups)
            continue
        name, text = variable.removeprefix(group.prefix), environ[variable]
        if name in WIRED and name in group.names:
            faults.append(f"{variable} is set by tandem up itself: unset it; {WIRED[name]}")
        elif name in group.names:
            faults += _faults(group, variable, text)
            variables[variable] = text
        elif _is_service_link(variable, text):
            notes.append(f"{variable} is Kubernetes' own, and is passed over")
        elif near := difflib.get_close_matches(name, group.names, n=1, cutoff=_SLIP_RATIO):
            faults.append(f"{variable} is no setting; did you mean {group.prefix}{near[0]}?")
        else:
            notes.append(f"{variable} is no setting of Tandem's, and is passed over")
    try:
        check_trace_settings(environ)
    except SettingsError as error:
        faults.append(str(error))
    if faults:
        raise StartRefused("\n".join([*faults, "docs/settings.md has all settings"]))
    return GivenSettings(variables, notes)


def _is_service_link(variable: str, text: str) -> bool:
    is_url = variable.endswith("_PORT") and text.startswith(("tcp://", "udp://", "sctp://"))
    return is_url or _SERVICE_LINK.fullmatch(variable) is not None


def _faults(group: SettingsGroup, variable: str, text: str) -> list[str]:
    # What must be set is of types that "1" is of, all of them, and within their ranges.
    environ = {f"{group.prefix}{name}": "1" for name in group.names if name in WIRED}
    try:
        load(group.settings_class, group.prefix, environ | {variable: text})
    except SettingsError as error:
        return str(error).splitlines()
    return []


def _prefix_slips(variable: str, groups: Sequence[SettingsGroup]) -> list[str]:
    known = [f"{group.prefix}{name}" for group in groups for name in group.names]
    near = difflib.get_close_matches(variable, known, n=1, cutoff=_PREFIX_SLIP_RATIO)
    return [f"{variable} is no setting of Tandem's; did you mean {near[0]}?"] if near else []
