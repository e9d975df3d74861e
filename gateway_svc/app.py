"""Puts the routes together: the application that the HTTP server runs."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway_svc.admission import AdmittedEndpoint
from gateway_svc.connection import ConnectionLimits
from gateway_svc.console_files import API_PAGE, ConsoleFiles, console_settings
from gateway_svc.edge import Edge
from gateway_svc.faults import NOTHING_HERE, HttpRefusal
from gateway_svc.http_call import HttpEndpoint
from gateway_svc.methods import METHODS
from gateway_svc.observed import SERVICE
from gateway_svc.openapi.document import openapi_document
from gateway_svc.problem import problem
from gateway_svc.protocols.rpc import RpcEndpoint
from gateway_svc.rest.embeddings import EmbeddingsEndpoint
from gateway_svc.rest.indexes import GetIndex, ListIndexes
from gateway_svc.rest.items import DeleteItem, GetItem, ListItems, PutItems, RemoveItems
from gateway_svc.rest.models import GetModel, ListModels
from gateway_svc.rest.rerank import RerankEndpoint
from gateway_svc.rest.search import SearchEndpoint
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import Upstream
from tandem.chassis.admission import Admission
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
        admission = Admission(SERVICE, settings.admission_limits())

        def admitted(endpoint: HttpEndpoint) -> ASGIApp:
            return AdmittedEndpoint(endpoint, guard, admission, settings)

        files = ConsoleFiles(added=console_settings(settings))
        rest = files if settings.console_enabled else _not_found
        router = Router(_routes(upstream, admitted), redirect_slashes=False, default=rest)
        self._edge = Edge(router, settings, guard.peer_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._edge(scope, receive, send)


def _endpoints(upstream: Upstream) -> list[tuple[str, str, HttpEndpoint]]:
    """Returns the path, the HTTP method and the endpoint of each operation."""
    rerank = RerankEndpoint(upstream)
    return [
        ("/v1/search", "POST", SearchEndpoint(upstream)),
        ("/v1/items", "PUT", PutItems(upstream)),
        ("/v1/items", "GET", ListItems(upstream)),
        ("/v1/items:remove", "POST", RemoveItems(upstream)),
        ("/v1/items/{item_id:path}", "GET", GetItem(upstream)),
        ("/v1/items/{item_id:path}", "DELETE", DeleteItem(upstream)),
        ("/v1/indexes", "GET", ListIndexes(upstream)),
        ("/v1/indexes/{index_id}", "GET", GetIndex(upstream)),
        ("/v1/models", "GET", ListModels(upstream)),
        ("/v1/models/{model_id:path}", "GET", GetModel(upstream)),
        ("/v1/rerank", "POST", rerank),
        # The path of Cohere's second version.
        ("/v2/rerank", "POST", rerank),
        ("/v1/embeddings", "POST", EmbeddingsEndpoint(upstream)),
        *((path, "POST", RpcEndpoint(method, upstream)) for path, method in METHODS.items()),
    ]


def _routes(upstream: Upstream, admitted: Callable[[HttpEndpoint], ASGIApp]) -> list[BaseRoute]:
    endpoints = _endpoints(upstream)
    apps: dict[str, dict[str, ASGIApp]] = {}
    for path, http_method, endpoint in endpoints:
        apps.setdefault(path, {})[http_method] = admitted(endpoint)
    document = Response(openapi_document(endpoints), media_type="application/json")
    apps["/openapi.json"] = {"GET": document}
    apps["/docs"] = {"GET": RedirectResponse("/docs/", HTTPStatus.PERMANENT_REDIRECT)}
    page = ConsoleFiles(API_PAGE, "/docs")
    return [
        *(Route(path, _ByMethod(by_method)) for path, by_method in apps.items()),
        Mount("/docs", page),
    ]


class _ByMethod:
    """Hands a request on to the application for its HTTP method."""

    def __init__(self, apps: dict[str, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A HEAD is answered as a GET; uvicorn leaves the body out.
        app = self._apps.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if app is None:
            implied = {"HEAD", "OPTIONS"} if "GET" in self._apps else {"OPTIONS"}
            allowed = ", ".join(sorted(self._apps.keys() | implied))
            if scope["method"] == "OPTIONS":
                answer = Response(status_code=HTTPStatus.NO_CONTENT, headers={"allow": allowed})
                await answer(scope, receive, send)
                return
            refusal = HttpRefusal(
                HTTPStatus.METHOD_NOT_ALLOWED, f"send {allowed} here", {"allow": allowed}
            )
            await problem(refusal)(scope, receive, send)
        else:
            await app(scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    refusal = HttpRefusal(HTTPStatus.NOT_FOUND, NOTHING_HERE)
    await problem(refusal)(scope, receive, send)
