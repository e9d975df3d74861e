"""Puts the routes together: the application that the HTTP server runs."""

from __future__ import annotations

from http import HTTPStatus

from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway_svc.connection import ConnectionLimits
from gateway_svc.console_files import ConsoleFiles
from gateway_svc.door import Door, Hall
from gateway_svc.edge import Edge
from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpEndpoint
from gateway_svc.methods import METHODS
from gateway_svc.problem import problem
from gateway_svc.protocols.rpc import RpcEndpoint
from gateway_svc.rest.embeddings import EmbeddingsEndpoint
from gateway_svc.rest.items import DeleteItem, GetItem, ListItems, PutItems, RemoveItems
from gateway_svc.rest.rerank import RerankEndpoint
from gateway_svc.rest.search import SearchEndpoint
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import Upstream
from tandem.chassis.guard import Guard


class GatewayApp:
    """Everything that the gateway answers, as one ASGI application."""

    def __init__(self, upstream: Upstream, guard: Guard, settings: GatewaySettings) -> None:
        """Needs a running event loop."""
        self.limits = ConnectionLimits(
            settings.max_connection_count,
            settings.max_connection_count_by_host,
            settings.head_seconds,
            settings.idle_seconds,
        )
        hall = Hall(guard, settings)
        rest = ConsoleFiles() if settings.console_enabled else _not_found
        router = Router(_routes(upstream, hall), redirect_slashes=False, default=rest)
        self._edge = Edge(router, settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._edge(scope, receive, send)


def _routes(upstream: Upstream, hall: Hall) -> list[BaseRoute]:
    def post(path: str, endpoint: HttpEndpoint) -> Route:
        return _route(path, {"POST": Door(endpoint, hall)})

    return [
        *(post(path, RpcEndpoint(method, upstream)) for path, method in METHODS.items()),
        post("/v1/search", SearchEndpoint(upstream)),
        _route(
            "/v1/items",
            {"PUT": Door(PutItems(upstream), hall), "GET": Door(ListItems(upstream), hall)},
        ),
        post("/v1/items:remove", RemoveItems(upstream)),
        _route(
            "/v1/items/{item_id:path}",
            {"GET": Door(GetItem(upstream), hall), "DELETE": Door(DeleteItem(upstream), hall)},
        ),
        post("/v1/rerank", RerankEndpoint(upstream)),
        # Cohere's second version asks for the same.
        post("/v2/rerank", RerankEndpoint(upstream)),
        post("/v1/embeddings", EmbeddingsEndpoint(upstream)),
    ]


def _route(path: str, doors: dict[str, ASGIApp]) -> Route:
    """Returns the route of a path, with the door of each HTTP method."""
    return Route(path, _ByMethod(doors))


class _ByMethod:
    """An ASGI application: the door of the request's HTTP method."""

    def __init__(self, doors: dict[str, ASGIApp]) -> None:
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        door = self._doors.get(scope["method"])
        if door is None:
            allowed = ", ".join(sorted(self._doors))
            refusal = HttpRefusal(
                HTTPStatus.METHOD_NOT_ALLOWED, f"send {allowed} here", {"allow": allowed}
            )
            await problem(refusal)(scope, receive, send)
        else:
            await door(scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    refusal = HttpRefusal(HTTPStatus.NOT_FOUND, "nothing is served at this path")
    await problem(refusal)(scope, receive, send)
