"""Where Tandem is, in a form that a pipeline's file can have."""

from dataclasses import dataclass
from typing import Any

from haystack.utils import Secret

from tandem.client import Access, AsyncClient, Client


@dataclass(frozen=True, slots=True)
class Connection:
    """The parameters that both components have in common."""

    address: str
    timeout_seconds: float
    token: Secret | None
    authority_file: str | None
    certificate_file: str | None
    key_file: str | None

    def client(self) -> Client:
        """Returns a client; raises OSError, ValueError and the errors of `tandem.errors`."""
        return Client(self.address, self.timeout_seconds, self._access())

    def async_client(self) -> AsyncClient:
        """Returns a client for the running event loop; raises as `client` does."""
        return AsyncClient(self.address, self.timeout_seconds, self._access())

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters; a token that is not an environment variable raises ValueError."""
        return {
            "address": self.address,
            "timeout_seconds": self.timeout_seconds,
            "token": self.token.to_dict() if self.token else None,
            "authority_file": self.authority_file,
            "certificate_file": self.certificate_file,
            "key_file": self.key_file,
        }

    def _access(self) -> Access:
        given = {
            "TANDEM_TOKEN": self.token.resolve_value() if self.token else None,
            "TANDEM_AUTHORITY_FILE": self.authority_file,
            "TANDEM_CERTIFICATE_FILE": self.certificate_file,
            "TANDEM_KEY_FILE": self.key_file,
        }
        return Access.from_environment({name: value for name, value in given.items() if value})
