"""Opens the gateway in the orchestrator's process, if its variables say so."""

from collections.abc import Mapping

from orchestrator_svc.settings import is_in_process
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.server import AttachedServer
from tandem.chassis.settings import SettingsError, load
from tandem.chassis.tls import Identity

_ADDRESS = "GATEWAY_ORCHESTRATOR_ADDRESS"


def hosted_gateway(environ: Mapping[str, str], identity: Identity | None) -> AttachedServer | None:
    """Returns the gateway if the orchestrator's address is in-process for it.

    Raises SettingsError for invalid GATEWAY_… variables, or without its packages.
    """
    if not is_in_process(environ.get(_ADDRESS, "")):
        return None
    try:
        # Only here, as an HTTP framework is an extra.
        from gateway_svc.serving import Gateway
        from gateway_svc.settings import GatewaySettings
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{_ADDRESS}: HTTP needs {error.name}: pip install 'tandem-search[gateway]'"
        ) from error
    settings = load(GatewaySettings, "GATEWAY_", environ)
    return Gateway(settings, identity, load_guard_or_exit(identity))
