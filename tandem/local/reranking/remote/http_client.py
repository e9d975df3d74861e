"""Posts JSON to the API of a remote cross-encoder, and names what can go wrong."""

import asyncio
import json
import math
import ssl
from typing import Final

import httpx2

from tandem.errors import DeadlineExceeded, ModelOutputInvalid, ModelUnavailable, Overloaded
from tandem.local.reranking.remote.endpoint import RemoteEndpoint
from tandem.local.reranking.remote.shapes import JsonObject

# A score takes some 50 bytes; an API that echoes its documents is cut off.
_MAX_ANSWER_BYTES: Final = 4 << 20
_KEEPALIVE_SECONDS: Final = 60.0
HINTS: Final = {
    400: "its log says what it refuses",
    401: "check RERANK_REMOTE_KEY_FILE",
    403: "check RERANK_REMOTE_KEY_FILE",
    404: "check RERANK_REMOTE_URL and RERANK_REMOTE_MODEL",
    413: "lower RERANK_REMOTE_BATCH_COUNT or RERANK_REMOTE_PICTURE_PIXELS",
    422: "check RERANK_REMOTE_SHAPE",
}
"""What to do about a status."""
# The API is at its limit: 429, or 503 if it says when to come back.
_TOO_MANY: Final = 429
_BUSY: Final = 503
_MAX_RETRY_SECONDS: Final = 5.0
_USUAL_RETRY_SECONDS: Final = 1.0


class RemoteHttpClient:
    """Holds connections to one API. Redirects are not followed, proxies' variables not read."""

    def __init__(
        self, endpoint: RemoteEndpoint, *, key: str = "", trust: ssl.SSLContext | None = None
    ) -> None:
        """Sends `key` as a bearer token; `trust` checks the API's certificate."""
        self._endpoint = endpoint
        self._requests = asyncio.Semaphore(endpoint.max_request_count)
        limits = httpx2.Limits(
            max_connections=endpoint.max_request_count,
            max_keepalive_connections=endpoint.max_request_count,
            keepalive_expiry=_KEEPALIVE_SECONDS,
        )
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            # A connection that cannot be opened is tried once again; a request never.
            transport=httpx2.AsyncHTTPTransport(
                verify=trust or True, trust_env=False, limits=limits, retries=1
            ),
            trust_env=False,
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def post(self, body: JsonObject, timeout_seconds: float) -> object:
        """Returns the answer's JSON value.

        Raises DeadlineExceeded, Overloaded where the API says so, ModelUnavailable where it does
        not answer or refuses, and ModelOutputInvalid for what is not JSON.
        """
        content = json.dumps(body).encode()
        seconds = min(timeout_seconds, self._endpoint.request_seconds)
        try:
            async with asyncio.timeout(seconds), self._requests:
                return await self._post(content)
        except TimeoutError:
            if seconds < timeout_seconds:
                raise self._unavailable(f"no answer in {seconds:g} s") from None
            raise DeadlineExceeded(what="the remote rerank") from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise self._unavailable(str(error) or type(error).__name__) from error

    async def _post(self, content: bytes) -> object:
        request = self._client.build_request(
            "POST",
            self._endpoint.url,
            content=content,
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json",
                # A compressed answer could unpack to any size.
                "Accept-Encoding": "identity",
            },
            timeout=httpx2.Timeout(None, connect=self._endpoint.connect_seconds),
        )
        response = await self._client.send(request, stream=True)
        try:
            self._check_status(response)
            return self._parsed(await self._body(response))
        finally:
            await response.aclose()

    def _check_status(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status == 200:
            return
        retry_after = response.headers.get("Retry-After", "")
        if status == _TOO_MANY or (status == _BUSY and retry_after):
            raise Overloaded(
                what=f"the remote cross-encoder {self._endpoint.model} answered {status}",
                retry_delay_seconds=_retry_seconds(retry_after),
            )
        hint = f"; {HINTS[status]}" if status in HINTS else ""
        if 300 <= status < 400:
            hint = "; redirects are not followed, so set RERANK_REMOTE_URL to where it leads"
        raise self._unavailable(f"it answered {status}{hint}")

    async def _body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_ANSWER_BYTES:
                raise self._invalid(f"over {_MAX_ANSWER_BYTES:,} bytes")
        return bytes(body)

    def _parsed(self, body: bytes) -> object:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._invalid("it is not JSON") from error

    def _unavailable(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(model=self._endpoint.model, why=why)

    def _invalid(self, why: str) -> ModelOutputInvalid:
        return ModelOutputInvalid(model=self._endpoint.model, why=why)


def _retry_seconds(header: str) -> float:
    """Returns the seconds that a Retry-After header asks for, within reason."""
    try:
        seconds = float(header)
    except ValueError:  # A date, or nothing.
        return _USUAL_RETRY_SECONDS
    if math.isnan(seconds):  # Which "nan" is read as, and no limit holds.
        return _USUAL_RETRY_SECONDS
    return min(max(seconds, 0.1), _MAX_RETRY_SECONDS)
