"""The gateway's settings, from GATEWAY_… variables."""

from dataclasses import dataclass

from tandem.chassis.capacity.admission import AdmissionLimits
from tandem.chassis.serve.service import ServiceSettings
from tandem.chassis.settings import AT_LEAST_1, OVER_0, setting

IN_PROCESS = "in-process"
"""The orchestrator's address in its own process (`python -m merged_svc`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewaySettings(ServiceSettings):
    """Configures the orchestrator's address, who may call from a browser, and limits."""

    address: str = setting("host:port to listen on, for HTTP", default="127.0.0.1:7450")
    metrics_port: int = setting("port of /metrics, /live and /ready", default=7550)
    orchestrator_address: str = setting(
        "host:port of orchestrator_svc; in-process, with `python -m merged_svc`, serves HTTP from "
        "the orchestrator's process"
    )
    console_enabled: bool = setting("whether the web console is served at /", default=True)
    console_note: str = setting("a sentence that the console shows on top", default="")
    console_trace_url: str = setting(
        "where a trace is found, for the console to link to, with {trace_id} in it", default=""
    )
    console_dashboard_url: str = setting(
        "where Grafana is found, for the console to link to", default=""
    )
    hosts: tuple[str, ...] = setting(
        "names by which callers may address it, without port; empty for every name, or for this "
        "machine's only if `address` is a loopback address",
        default=(),
    )
    origins: tuple[str, ...] = setting(
        "other origins whose pages may call it from a browser, for example https://app.example; "
        "empty for none",
        default=(),
    )
    max_inflight_count: int = setting("requests in flight; more are refused", default=64)
    max_inflight_bytes: int = setting(
        "bytes of request bodies in flight; more are refused", default=256 * 1024 * 1024
    )
    max_answer_bytes: int = setting(
        "bytes of answers that callers have not read yet; more are refused",
        default=256 * 1024 * 1024,
    )
    max_connection_count: int = setting(
        "open connections; for a new one the longest idle is closed", default=1024
    )
    max_connection_count_by_host: int = setting(
        "open connections of one host; for a new one the longest idle is closed", default=256
    )
    max_head_bytes: int = setting(
        "bytes of a request's first line and headers", default=16 * 1024, within=AT_LEAST_1
    )
    head_seconds: float = setting("time for a request's headers to arrive", default=10.0)
    body_seconds: float = setting(
        "time for a request's body to arrive, and one second more for each 64 KiB", default=20.0
    )
    idle_seconds: float = setting(
        "after which a connection without requests is closed", default=75.0
    )
    send_seconds: float = setting(
        "time for a caller to read an answer, and one second more for each 64 KiB",
        default=20.0,
        within=OVER_0,
    )
    default_timeout_seconds: float = setting("for callers that set no deadline", default=10.0)
    max_timeout_seconds: float = setting(
        "longest time for a call, whatever deadline its caller sets", default=60.0
    )

    def admission_limits(self) -> AdmissionLimits:
        """Returns how much the gateway admits at once; it has no streams of requests."""
        return AdmissionLimits(
            max_inflight_count=self.max_inflight_count,
            max_inflight_bytes=self.max_inflight_bytes,
            max_answer_bytes=self.max_answer_bytes,
            max_stream_count=0,
        )
