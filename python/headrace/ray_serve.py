"""A Ray Serve deployment: each replica has a model in its process, and speaks the server's dialects over Ray's HTTP.

    serve run headrace.ray_serve:app model=smollm2:135m

From Python, with any options of a deployment:

    from headrace.ray_serve import HeadraceDeployment
    serve.run(HeadraceDeployment.options(num_replicas=2, ray_actor_options={"num_cpus": 8}).bind("model.gguf"))

Clients then use the address of Ray Serve as they would that of `headrace serve`; other deployments use a handle:
`await handle.generate.remote(prompt, max_tokens=20)`, and `handle.options(stream=True).stream.remote(prompt)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from . import _native
from ._answers import Answer, Piece
from ._llm import LLM
from ._transport import ready

#: What HTTP clients may ask for. Routes that change what a replica holds (pull, delete, adapters) are not among them.
ROUTES = frozenset(
    {
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/rerank"),
        ("POST", "/v1/score"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
        ("POST", "/render"),
        ("GET", "/v1/models"),
        ("GET", "/health"),
        ("GET", "/ready"),
        ("GET", "/version"),
    }
)


async def _bytes_of(answer: _native.Answer, first: bytes) -> AsyncIterator[bytes]:
    """The rest of a stream. When the client leaves, this is closed and the request cancelled."""
    try:
        yield first
        ended = False
        while not ended:
            await ready(answer)
            _, data, ended, _ = answer.take()
            if data:
                yield data
    finally:
        answer.cancel()


async def _response_of(answer: _native.Answer) -> Response:
    status, data, ended = 0, b"", False
    try:
        while status == 0:
            await ready(answer)
            status, data, ended, _ = answer.take()
    except BaseException:
        answer.cancel()
        raise
    headers = answer.headers
    if ended:
        return Response(data, status, headers)
    return StreamingResponse(_bytes_of(answer, data), status, headers)


class _Replica:
    """The class of the deployment; what it is built with is what headrace.LLM takes."""

    def __init__(self, model: str, **options: Any) -> None:
        self.llm = LLM(model, **options)

    async def __call__(self, request: Request) -> Response:
        """Any of ROUTES, as `headrace serve` answers it."""
        prefix = request.scope.get("root_path", "")
        path = request.scope["path"].removeprefix(prefix.rstrip("/")) or "/"
        if (request.method, path) not in ROUTES:
            return Response(f"there is no {request.method} {path} here", 404)
        return await _response_of(self.llm._native.ask(request.method, path, await request.body()))

    async def generate(self, prompt: Any, **sampling: Any) -> Answer:
        """For handles: headrace.LLM.agenerate."""
        return await self.llm.agenerate(prompt, **sampling)

    async def stream(self, prompt: Any, **sampling: Any) -> AsyncIterator[Piece]:
        """For handles with stream=True: headrace.LLM.astream."""
        async with self.llm.astream(prompt, **sampling) as pieces:
            async for piece in pieces:
                yield piece

    async def embed(self, inputs: Any, **fields: Any) -> Any:
        """For handles: headrace.LLM.embed."""
        return await asyncio.to_thread(self.llm.embed, inputs, **fields)

    def num_running(self) -> int:
        """Requests in this replica's engine."""
        return self.llm.num_running

    def check_health(self) -> None:
        """Ray Serve asks now and then, and replaces a replica that raises."""
        if not self.llm.is_healthy():
            raise RuntimeError("the engine has work, but makes no progress")

    def __del__(self) -> None:
        if hasattr(self, "llm"):
            self.llm.close()


#: With the limits of one engine: more requests than these wait at Ray's door, which sees them for its autoscaling.
HeadraceDeployment = serve.deployment(name="headrace", max_ongoing_requests=256, health_check_period_s=10)(_Replica)


def app(args: dict[str, Any]) -> serve.Application:
    """For `serve run` and configuration files: args are model, num_replicas and options of headrace.LLM."""
    options = dict(args)
    deployment = HeadraceDeployment
    if "num_replicas" in options:
        deployment = deployment.options(num_replicas=int(options.pop("num_replicas")))
    return deployment.bind(options.pop("model"), **options)
