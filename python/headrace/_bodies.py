"""Arguments to bodies of requests: what the server's routes take (docs/api-fields.md)."""

from __future__ import annotations

import json
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

Message = Mapping[str, Any]
#: A text to continue, its token ids, or a conversation to answer.
Prompt = Union[str, Sequence[int], Sequence[Message]]

#: Arguments whose name on the wire is another.
_NAMES = {
    "adapter": "model",
    "include_stop": "include_stop_str_in_output",
    "template_variables": "chat_template_kwargs",
}
_STRUCTURES = {"schema": "json", "regex": "regex", "grammar": "grammar", "choices": "choice"}


class Sampling(TypedDict, total=False):
    """Arguments of every call that generates. What is left out is as the model's files recommend."""

    max_tokens: int
    min_tokens: int
    temperature: float  #: 0 is greedy
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int  #: the same seed, the same answer
    n: int  #: answers to each prompt
    stop: Union[str, Sequence[str]]
    stop_token_ids: Sequence[int]
    include_stop: bool
    ignore_eos: bool
    skip_special_tokens: bool
    logprobs: int  #: log-probabilities, with so many alternatives
    echo: bool  #: the answer begins with the prompt (texts and ids)
    suffix: str  #: the text after the answer (texts, where the model has fill-in-the-middle)
    schema: Any  #: a JSON schema that the answer holds to, or a pydantic model
    regex: str
    grammar: str  #: Lark, or the EBNF of GGUF tools
    choices: Sequence[str]
    tools: Sequence[Mapping[str, Any]]
    tool_choice: Any
    parallel_tool_calls: bool
    documents: Sequence[Mapping[str, Any]]
    reasoning_effort: str
    enable_thinking: bool
    thinking_budget: int
    add_generation_prompt: bool
    continue_final_message: bool
    template_variables: Mapping[str, Any]
    adapter: str  #: the name of an adapter
    cache_salt: str
    fields: Mapping[str, Any]  #: further fields of the body, by their names on the wire


def is_one_prompt(prompts: Any) -> bool:
    """A text, ids or one conversation, and not a list of these?"""
    if isinstance(prompts, str):
        return True
    return len(prompts) > 0 and isinstance(prompts[0], (numbers.Integral, Mapping))


def as_prompts(prompts: Any) -> list[Prompt]:
    return [prompts] if is_one_prompt(prompts) else list(prompts)


def _is_chat(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _schema_of(schema: Any) -> Any:
    make = getattr(schema, "model_json_schema", None)
    return make() if callable(make) else schema


def _plain(value: Any) -> Any:
    """For JSON: arrays of numbers (numpy, torch, array) as lists, mappings as objects."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be part of a request")


def encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, default=_plain, allow_nan=False).encode()


def _fields_of(arguments: Mapping[str, Any], is_chat: bool) -> dict[str, Any]:
    body: dict[str, Any] = {}
    structure: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in Sampling.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}; further fields of the body go into fields={{...}}")
        if value is None:
            continue
        if name in _STRUCTURES:
            structure[_STRUCTURES[name]] = _schema_of(value) if name == "schema" else value
        elif name == "logprobs" and is_chat:
            body.update(logprobs=True, top_logprobs=value)
        elif name != "fields":
            body[_NAMES.get(name, name)] = value
    if structure:
        body["structured_outputs"] = structure
    further = arguments.get("fields") or {}
    if "stream" in further:
        raise TypeError("to have an answer in pieces, call stream()")
    body.update(further)
    return body


def generation(prompt: Prompt, arguments: Mapping[str, Any], stream: bool = False) -> tuple[str, dict[str, Any]]:
    """(path, body) of a prompt."""
    is_chat = _is_chat(prompt)
    body = _fields_of(arguments, is_chat)
    body["messages" if is_chat else "prompt"] = prompt
    if stream:
        body["stream"] = True
    return ("/v1/chat/completions" if is_chat else "/v1/completions"), body
