"""Requests to a loaded model and their answers: waiting, streams, errors."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from . import _native
from ._answers import Piece, piece_of
from ._bodies import encoded
from ._errors import Error, error_of, stream_error_of


class IgnoredFieldWarning(UserWarning):
    """A field of `fields={...}` that nothing reads."""


def ask(model: _native.Model, path: str, body: Mapping[str, Any] | None = None) -> _native.Answer:
    """body: None asks with GET."""
    if body is None:
        return model.ask("GET", path, b"")
    return model.ask("POST", path, encoded(body))


def _check(status: int, data: bytes, broken: bool) -> None:
    if status >= 400:
        raise error_of(status, data)
    if broken:
        raise Error("the answer was cancelled", code="unavailable")


def _warn_of(answer: _native.Answer) -> None:
    ignored = answer.headers.get("x-headrace-ignored")
    if ignored:
        warnings.warn(f"nothing reads {ignored}", IgnoredFieldWarning, stacklevel=4)


def whole(answer: _native.Answer) -> dict[str, Any]:
    """Waits for all of an answer. Interrupted, the request is cancelled."""
    parts = []
    try:
        ended = False
        while not ended:
            status, data, ended, broken = answer.next()
            parts.append(data)
    except BaseException:
        answer.cancel()
        raise
    return _parsed(answer, status, b"".join(parts), broken)


def _parsed(answer: _native.Answer, status: int, data: bytes, broken: bool) -> dict[str, Any]:
    _check(status, data, broken)
    _warn_of(answer)
    return json.loads(data)


async def ready(answer: _native.Answer) -> None:
    """Until there is something to take, without a thread."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    descriptor = answer.fileno()
    loop.add_reader(descriptor, lambda: None if woken.done() else woken.set_result(None))
    try:
        await woken
    finally:
        loop.remove_reader(descriptor)


async def whole_async(answer: _native.Answer) -> dict[str, Any]:
    parts = []
    try:
        ended = False
        while not ended:
            await ready(answer)
            status, data, ended, broken = answer.take()
            parts.append(data)
    except BaseException:
        answer.cancel()
        raise
    return _parsed(answer, status, b"".join(parts), broken)


class _Events:
    """Server-sent events out of the bytes of an answer."""

    def __init__(self) -> None:
        self._rest = b""
        self._error = b""

    def push(self, status: int, data: bytes, ended: bool, broken: bool) -> list[Piece]:
        if status >= 400:
            self._error += data
            if ended:
                raise error_of(status, self._error)
            return []
        *events, self._rest = (self._rest + data).split(b"\n\n")
        pieces = [piece for event in events for piece in self._pieces(event)]
        if broken and not pieces:
            raise Error("the answer was cancelled", code="unavailable")
        return pieces

    @staticmethod
    def _pieces(event: bytes) -> list[Piece]:
        if not event.startswith(b"data: ") or event == b"data: [DONE]":
            return []
        shown = json.loads(event.removeprefix(b"data: "))
        if "error" in shown:
            raise stream_error_of(shown["error"])
        # A chat begins with the role of each choice: no part of an answer.
        return [piece_of(choice) for choice in shown["choices"] if "role" not in choice.get("delta", ())]


class Stream(Iterator[Piece]):
    """The pieces of an answer as they come. Closed or dropped before its end, the request is cancelled."""

    def __init__(self, answer: _native.Answer, model: object) -> None:
        self._answer: _native.Answer | None = answer
        self._model = model  # which stays loaded meanwhile
        self._events = _Events()
        self._pieces: list[Piece] = []

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        while not self._pieces:
            if self._answer is None:
                raise StopIteration
            self._take(self._answer.next())
        return self._pieces.pop(0)

    def _take(self, news: tuple[int, bytes, bool, bool]) -> None:
        answer, ended = self._answer, news[2]
        if ended:
            self._answer = None
        try:
            self._pieces = self._events.push(*news)
        except Error:
            self._answer = None
            raise
        if ended and answer is not None:
            _warn_of(answer)

    def text(self) -> str:
        """The text of all pieces to come."""
        return "".join(piece.text for piece in self)

    def close(self) -> None:
        """Ends the request."""
        if self._answer is not None:
            self._answer.cancel()
        self._answer = None
        self._pieces = []

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStream(AsyncIterator[Piece]):
    """A Stream for `async for`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Piece:
        stream = self._stream
        while not stream._pieces:
            answer = stream._answer
            if answer is None:
                raise StopAsyncIteration
            try:
                await ready(answer)
            except BaseException:
                stream.close()
                raise
            stream._take(answer.take())
        return stream._pieces.pop(0)

    async def text(self) -> str:
        """The text of all pieces to come."""
        return "".join([piece.text async for piece in self])

    async def aclose(self) -> None:
        """Ends the request."""
        self._stream.close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
