"""All of Tandem as it is deployed with locks: certificates on every hop, tokens at both doors."""

from __future__ import annotations

import secrets
from hashlib import sha256
from pathlib import Path

import trustme

from tandem.chassis.access.tokens import Scope
from tandem.stack.stack import LocalStack, Ports
from tests.support.chassis.authority import Files

INDEX_ID = "scenes"
OTHER_INDEX_ID = "emoji"
_EVERY_SCOPE = tuple(Scope)


def token_entry(
    name: str,
    token: str,
    *,
    scopes: tuple[Scope, ...] = _EVERY_SCOPE,
    index_id: str = "*",
) -> str:
    """Returns what a token file says of a token."""
    quoted = ", ".join(f'"{scope.value}"' for scope in scopes)
    digest = sha256(token.encode()).hexdigest()
    return f'[tokens.{name}]\nsha256 = "{digest}"\nscopes = [{quoted}]\nindexes = ["{index_id}"]\n'


class SecuredStack(LocalStack):
    """As the component cert-manager has it: who is not the orchestrator gets in nowhere behind it.

    Each service has a certificate of its own. At the orchestrator's port callers need a token and
    no certificate; index_svc lets in "operator" too, for its admin methods, which ask for a token
    out of another file than the orchestrator's.
    """

    def __init__(self, folder: Path, model_repository: Path, collector_address: str) -> None:
        super().__init__(folder / "data", model_repository, Ports.free(shard_count=1))
        self._folder = folder
        self._collector_address = collector_address
        self.authority = trustme.CA()
        self.files: dict[str, Files] = {}
        for name in (*self.service_names(), "triton", "operator"):
            self.files[name] = Files(folder / f"tls-{name}")
        self.show_certificates_of(self.authority)
        self._certificates = {
            "triton": {
                "TLS_CERTIFICATE_FILE": self.files["triton"].settings.certificate_file,
                "TLS_KEY_FILE": self.files["triton"].settings.key_file,
                "TLS_AUTHORITY_FILE": self.files["triton"].settings.authority_file,
                "TLS_PEER_NAMES": "encoder,rerank",
            }
        }
        self.token, self.admin_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.token_path, self.admin_token_path = folder / "door.toml", folder / "admin.toml"
        self.token_path.write_text(token_entry("caller", self.token))
        self.admin_token_path.write_text(token_entry("operator", self.admin_token))
        self.collector_key = secrets.token_urlsafe(32)

    def show_certificates_of(
        self, authority: trustme.CA, trusted: tuple[trustme.CA, ...] = ()
    ) -> None:
        """Issues a certificate to everybody, and lets them trust that authority, or those given."""
        for name, files in self.files.items():
            kind = name.partition("-")[0]
            files.write(authority, "localhost", "127.0.0.1", kind, trusted=trusted)

    def log_paths(self) -> list[Path]:
        """Returns the files that the processes write to."""
        return sorted(self._data_folder.glob("logs/*"))

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Adds what locks the service."""
        arguments, variables = super().command(name)
        if name == "tls-proxy":
            return arguments, variables | {"LOG_LEVEL": "debug"}
        kind = name.partition("-")[0]
        files = self.files[name].settings
        variables |= {
            "TLS_CERTIFICATE_FILE": files.certificate_file,
            "TLS_KEY_FILE": files.key_file,
            "TLS_AUTHORITY_FILE": files.authority_file,
            "LOG_LEVEL": "debug",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self._collector_address}",
            "OTEL_TRACES_SAMPLER_ARG": "0",  # but what a caller wants traced is
            "OTEL_BSP_SCHEDULE_DELAY": "300",  # ms, so that no test waits five seconds for spans
            # OpenTelemetry's own, and what a collector that is somebody else's is paid with.
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={self.collector_key}",
        }
        match kind:
            case "orchestrator":
                variables["TLS_CLIENT_CERTIFICATE_REQUIRED"] = "false"
                variables["ACCESS_TOKEN_FILE"] = str(self.token_path)
            case "index":
                variables["TLS_PEER_NAMES"] = "orchestrator,operator"
                variables["ACCESS_TOKEN_FILE"] = str(self.admin_token_path)
            case _:
                variables["TLS_PEER_NAMES"] = "orchestrator"
        return arguments, variables
