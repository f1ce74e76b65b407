"""What comes back, as values, and how they are read from the answers of the server's routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TokenScore:
    """One token's log-probability, before sampling, and the likeliest tokens at its place, by their texts. The first
    token of an echoed prompt has none."""

    token: str
    logprob: float | None
    top: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for; `arguments` is JSON. In a stream a part of it, in order."""

    id: str
    name: str
    arguments: str
    index: int = 0


@dataclass(frozen=True)
class Usage:
    """Tokens that a request took."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Choice:
    """One answer to one prompt. finish_reason: "stop", "length" or "tool_calls"."""

    text: str
    finish_reason: str
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenScore, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """The answers to one prompt: n of them. `fingerprint` names model file and arithmetic: the same one and the same
    request mean the same bits."""

    choices: tuple[Choice, ...]
    usage: Usage
    id: str
    fingerprint: str

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.choices[0].text


@dataclass(frozen=True)
class Piece:
    """A part of a streamed answer; `choice` counts from 0. The last piece of a choice has a finish_reason."""

    text: str = ""
    choice: int = 0
    finish_reason: str | None = None
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenScore, ...] | None = None


@dataclass(frozen=True)
class Score:
    """Log-probabilities of a prompt's own tokens: logprobs[i] is that of ids[i] after those before it; the first has none."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    top: tuple[dict[str, float] | None, ...]

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(each for each in self.logprobs if each is not None)


@dataclass(frozen=True)
class Rendered:
    """A prompt as the model sees it."""

    text: str
    ids: tuple[int, ...]


def usage_of(shown: dict[str, Any]) -> Usage:
    return Usage(
        shown["prompt_tokens"],
        shown["completion_tokens"],
        shown["prompt_tokens_details"]["cached_tokens"],
        shown["completion_tokens_details"]["reasoning_tokens"],
    )


def _chat_scores(shown: dict[str, Any] | None) -> tuple[TokenScore, ...] | None:
    if not shown or shown.get("content") is None:
        return None
    return tuple(
        # Parts of characters look alike: the likeliest one stays.
        TokenScore(
            each["token"], each["logprob"], {top["token"]: top["logprob"] for top in reversed(each["top_logprobs"])}
        )
        for each in shown["content"]
    )


def _text_scores(shown: dict[str, Any] | None) -> tuple[TokenScore, ...] | None:
    if not shown:
        return None
    rows = zip(shown["tokens"], shown["token_logprobs"], shown["top_logprobs"], strict=True)
    return tuple(TokenScore(token, logprob, top or {}) for token, logprob, top in rows)


def _calls(shown: list[dict[str, Any]] | None) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            each.get("id", ""),
            each["function"].get("name", ""),
            each["function"].get("arguments", ""),
            each.get("index", position),
        )
        for position, each in enumerate(shown or ())
    )


def _parts(message: dict[str, Any]) -> dict[str, Any]:
    """What a message, or a part of one, holds."""
    return {
        "text": message.get("content") or "",
        "reasoning": message.get("reasoning_content") or "",
        "refusal": message.get("refusal") or "",
        "tool_calls": _calls(message.get("tool_calls")),
    }


def _choice(shown: dict[str, Any]) -> Choice:
    if "message" in shown:
        parts = _parts(shown["message"])
        return Choice(finish_reason=shown["finish_reason"], logprobs=_chat_scores(shown["logprobs"]), **parts)
    return Choice(shown["text"], shown["finish_reason"], logprobs=_text_scores(shown["logprobs"]))


def answer_of(shown: dict[str, Any]) -> Answer:
    choices = tuple(_choice(each) for each in shown["choices"])
    return Answer(choices, usage_of(shown["usage"]), shown["id"], shown["system_fingerprint"])


def piece_of(shown: dict[str, Any]) -> Piece:
    """Of one choice of one event."""
    common = {"choice": shown["index"], "finish_reason": shown["finish_reason"]}
    if "delta" in shown:
        return Piece(logprobs=_chat_scores(shown.get("logprobs")), **common, **_parts(shown["delta"]))
    return Piece(shown["text"], logprobs=_text_scores(shown.get("logprobs")), **common)


def score_of(ids: list[int], shown: dict[str, Any]) -> Score:
    scores = shown["choices"][0]["logprobs"]
    return Score(
        tuple(ids), tuple(scores["tokens"]), tuple(scores["token_logprobs"]), tuple(scores["top_logprobs"])
    )
