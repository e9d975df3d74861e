"""Reads services' settings from the environment of `tandem up`, and refuses invalid ones."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from encoder_svc.settings import EncoderSettings
from gateway_svc.settings import GatewaySettings
from index_svc.settings import IndexSettings
from orchestrator_svc.settings import OrchestratorSettings
from rerank_svc.settings import RerankSettings
from tandem.chassis.access.guard import AccessSettings
from tandem.chassis.serve.process import OptionalServices
from tandem.chassis.settings import SettingsError, load
from tandem.chassis.telemetry.tracing import check_trace_settings
from tandem.chassis.tls import TlsSettings
from tandem.stack.start_refused import StartRefused

SERVICES: Mapping[str, type[Any]] = {
    "orchestrator": OrchestratorSettings,
    "encoder": EncoderSettings,
    "index": IndexSettings,
    "rerank": RerankSettings,
    "gateway": GatewaySettings,
}
# Settings that a local stack sets itself, and the option to use instead.
WIRED: Mapping[str, str] = {
    "ADDRESS": "use --free-ports for other ports",
    "METRICS_PORT": "use --free-ports for other ports",
    "TRITON_ADDRESS": "use --free-ports for other ports",
    "TRITON_TLS": "--tls shows certificates before Triton",
    "MODEL_REPOSITORY": "--model-repository names it",
    "STORE_PATH": "--data names the folder of all",
    "SHARD_NUMBER": "--shards says how many there are",
    "SHARD_COUNT": "--shards says how many there are",
    "SHARD_MAP_VERSION": "--shards says how many there are",
    "ORCHESTRATOR_ADDRESS": "use --free-ports for other ports",
    "ENCODER_ADDRESS": "use --free-ports for other ports",
    "INDEX_ADDRESSES": "--shards says how many there are",
    "RERANK_ADDRESSES": "--shards says how many there are",
    "NEXT_ENCODER_ADDRESS": "--next runs a second model",
    "NEXT_RERANK_ADDRESSES": "--next runs a second model",
}
# Similarity after the shared prefix, from which we assume a typo and not another program.
_SLIP_RATIO = 0.75
_PREFIX_SLIP_RATIO = 0.93
# What Kubernetes sets in every pod for each service of its namespace.
_SERVICE_LINK = re.compile(
    r".+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """Variables with a common prefix."""

    prefix: str
    settings_class: type[Any]

    @property
    def names(self) -> list[str]:
        """Returns the names without the prefix."""
        return [field.name.upper() for field in fields(self.settings_class)]


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """The services' settings in the environment."""

    variables: Mapping[str, str]
    """Variables to pass on."""
    notes: Sequence[str]
    """A line for each similar variable of another program."""


def service_groups() -> list[SettingsGroup]:
    """Returns each service's own settings."""
    return [SettingsGroup(f"{name.upper()}_", settings) for name, settings in SERVICES.items()]


def shared_groups() -> list[SettingsGroup]:
    """Returns the settings that all services share."""
    return [
        SettingsGroup("TLS_", TlsSettings),
        SettingsGroup("ACCESS_", AccessSettings),
        SettingsGroup("DOOR_", OptionalServices),
    ]


def given_settings(environ: Mapping[str, str]) -> GivenSettings:
    """Returns the services' settings in an environment.

    Raises StartRefused with a line for each invalid variable: of a wrong type, misspelt, or set by
    `tandem up` itself. A name with a known prefix that resembles no setting is ignored.
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
            faults.append(f"{variable} is not a setting; did you mean {group.prefix}{near[0]}?")
        else:
            notes.append(f"{variable} is not a Tandem setting and is ignored")
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
    # "1" is a valid value of every required setting.
    environ = {f"{group.prefix}{name}": "1" for name in group.names if name in WIRED}
    try:
        load(group.settings_class, group.prefix, environ | {variable: text})
    except SettingsError as error:
        return str(error).splitlines()
    return []


def _prefix_slips(variable: str, groups: Sequence[SettingsGroup]) -> list[str]:
    known = [f"{group.prefix}{name}" for group in groups for name in group.names]
    near = difflib.get_close_matches(variable, known, n=1, cutoff=_PREFIX_SLIP_RATIO)
    return [f"{variable} is not a Tandem setting; did you mean {near[0]}?"] if near else []
