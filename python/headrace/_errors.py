"""The one exception of this package."""

from __future__ import annotations

import json

_CODES = {
    400: "invalid_argument",
    403: "permission",
    404: "not_found",
    422: "unprocessable",
    429: "exhausted",
    503: "unavailable",
}


class Error(Exception):
    """What headrace refuses or cannot do. Its text says what was found, what is needed and what to do.

    code:  "invalid_argument", "not_found", "unsupported", "corrupt", "io", "exhausted" (memory, a full queue: try again
           later), "unavailable" (closed, or a fork of the process that loaded the model), "unprocessable" (fails each
           time it is computed), "permission" or "internal".
    param: the field at fault, by its name on the wire ("temperature", "messages[2].content"), or None.
    """

    def __init__(self, message: str, *, code: str = "internal", param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


def error_of(status: int, body: bytes | str) -> Error:
    """What an answer with this status says."""
    try:
        shown = json.loads(body)["error"]
        message, param = shown["message"], shown["param"]
    except (ValueError, KeyError, TypeError):
        message, param = f"status {status}", None
    return Error(message, code=_CODES.get(status, "internal"), param=param)


def stream_error_of(shown: dict) -> Error:
    """What an event says that ends a stream before its time."""
    code = shown.get("code")
    return Error(shown["message"], code=_CODES.get(code, "internal"), param=shown.get("param"))
