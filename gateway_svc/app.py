"""Lists the routes, and puts them together: the application that the HTTP server runs."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway_svc.admission import SERVICE, AdmittedOperation
from gateway_svc.connection import ConnectionLimits
from gateway_svc.console_files import API_PAGE, ConsoleFiles, console_settings
from gateway_svc.edge import Edge
from gateway_svc.faults import NOTHING_HERE, HttpRefusal, problem
from gateway_svc.http_call import Operation
from gateway_svc.openapi import openapi_document
from gateway_svc.protocols.rpc import rpc_routes
from gateway_svc.rest.embeddings import embeddings
from gateway_svc.rest.indexes import get_index, list_indexes
from gateway_svc.rest.items import (
    delete_item,
    delete_items,
    get_item,
    list_items,
    patch_items,
    put_items,
    remove_items,
)
from gateway_svc.rest.models import get_model, list_models
from gateway_svc.rest.rerank import rerank
from gateway_svc.rest.search import search
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import Upstream
from tandem.chassis.access.guard import Guard
from tandem.chassis.capacity.admission import Admission


class _IdConvertor(PathConvertor):
    regex = r"(?s:.*)"  # Line feeds too: without them, "a\n" would be the id "a".


register_url_convertor("id", _IdConvertor())


class GatewayApp(Edge):
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

        def admitted(operation: Operation) -> ASGIApp:
            return AdmittedOperation(operation, upstream, guard, admission, settings)

        files = ConsoleFiles(added=console_settings(settings))
        rest = files if settings.console_enabled else _not_found
        router = Router(_routes(admitted), redirect_slashes=False, default=rest)
        super().__init__(router, settings, guard.peer_names)


ROUTES: Mapping[str, Operation] = {
    "POST /v1/search": search,
    "PUT /v1/items": put_items,
    "PATCH /v1/items": patch_items,
    "GET /v1/items": list_items,
    "DELETE /v1/items": delete_items,
    "POST /v1/items:remove": remove_items,
    "GET /v1/items/{item_id:id}": get_item,
    "DELETE /v1/items/{item_id:id}": delete_item,
    "GET /v1/indexes": list_indexes,
    "GET /v1/indexes/{index_id}": get_index,
    "GET /v1/models": list_models,
    "GET /v1/models/{model_id:id}": get_model,
    "POST /v1/rerank": rerank,
    "POST /v2/rerank": rerank,  # Cohere's second version
    "POST /rerank": rerank,  # vLLM's, Infinity's and TEI's
    "POST /v1/embeddings": embeddings,
    **rpc_routes(),
}


def _routes(admitted: Callable[[Operation], ASGIApp]) -> list[BaseRoute]:
    apps: dict[str, dict[str, ASGIApp]] = {}
    for route, operation in ROUTES.items():
        http_method, path = route.split()
        apps.setdefault(path, {})[http_method] = admitted(operation)
    described = {route: (each.name, each.description) for route, each in ROUTES.items()}
    document = Response(openapi_document(described), media_type="application/json")
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
