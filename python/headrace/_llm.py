"""LLM: a model loaded into this process."""

from __future__ import annotations

import base64
import os
import struct
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from . import _native, _transport
from ._answers import Answer, Rendered, Score, answer_of, score_of
from ._bodies import Message, Prompt, Sampling, as_prompts, generation, is_one_prompt
from ._errors import Error
from ._transport import AsyncStream, Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

_native.set_template_program(str(Path(__file__).with_name("headrace-templates")))

#: Requests of one call that are asked at once: enough for the engine never to wait for us.
_WINDOW = 256
#: Inputs of one request for vectors.
_EMBEDDING_INPUTS = 256


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


class LLM:
    """A model in this process: the engine of `headrace serve`, without a server.

    >>> with headrace.LLM("smollm2:135m") as llm:
    ...     print(llm.generate("The sky is", max_tokens=8, temperature=0).text)

    Every request means what it means on the wire and has the same bits there: `generate` sends texts and token ids as
    POST /v1/completions would, conversations as POST /v1/chat/completions. Thread-safe; requests of several threads run
    in one batch. The model belongs to the process that loaded it: in a fork each call is refused.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        context: int | None = None,
        threads: int | None = None,
        kv_memory: int | str | None = None,
        kv_type: str | None = None,
        activations: str | None = None,
        isa: str | None = None,
        max_sequences: int | None = None,
        batch_tokens: int | None = None,
        weight_cache: str | os.PathLike[str] | None = None,
        store: str | os.PathLike[str] | None = None,
        tool_format: str | None = None,
        reasoning_format: str | None = None,
        content_tokens: str | None = None,
        log_level: str = "warning",
        progress: bool = False,
    ) -> None:
        """Loads a model: a GGUF file, a folder of safetensors, or the name of a model that `headrace pull` fetched.

        adapters: LoRA adapters (PEFT folders) by the names that requests call them.
        progress: shows on standard error how far loading is.
        The others are options of `headrace serve`, whose --help explains them: kv_memory="2G" is --kv-memory 2G.
        What is left out is taken from the environment (HEADRACE_KV_MEMORY), else it has the same default.
        """
        options = {
            "--context": context,
            "--threads": threads,
            "--kv-memory": kv_memory,
            "--kv-type": kv_type,
            "--activations": activations,
            "--isa": isa,
            "--max-sequences": max_sequences,
            "--batch-tokens": batch_tokens,
            "--weight-cache": weight_cache,
            "--store": store,
            "--tool-format": tool_format,
            "--reasoning-format": reasoning_format,
            "--content-tokens": content_tokens,
            "--log-level": log_level,
            "--quiet": not progress,
        }
        given = {name: _option_text(value) for name, value in options.items() if value is not None}
        folders = {name: os.fspath(folder) for name, folder in (adapters or {}).items()}
        self._native = _native.Model(os.fspath(model), given, folders)
        # Also at the end of the interpreter, while its modules are still there.
        self._finalizer = weakref.finalize(self, self._native.close)

    # ---- its life ----

    def close(self) -> None:
        """Gives back memory and threads; what still runs ends with an error. May be called again."""
        self._finalizer()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- generating ----

    @overload
    def generate(self, prompts: str, **sampling: Unpack[Sampling]) -> Answer: ...
    @overload
    def generate(self, prompts: Sequence[int], **sampling: Unpack[Sampling]) -> Answer: ...
    @overload
    def generate(self, prompts: Sequence[Message], **sampling: Unpack[Sampling]) -> Answer: ...
    @overload
    def generate(self, prompts: Iterable[Prompt], **sampling: Unpack[Sampling]) -> list[Answer]: ...

    def generate(self, prompts: Any, **sampling: Any) -> Answer | list[Answer]:
        """Answers one prompt, or a list of them, which run in one batch.

        A prompt is a text to continue, its token ids, or a conversation: a list of messages
        {"role": ..., "content": ...}. The arguments are those of Sampling. The first prompt that is refused raises its
        Error, and the others are cancelled.
        """
        requests = [generation(prompt, sampling) for prompt in as_prompts(prompts)]
        answers = [answer_of(shown) for shown in self._ask_all(requests)]
        return answers[0] if is_one_prompt(prompts) else answers

    def stream(self, prompt: Prompt, **sampling: Unpack[Sampling]) -> Stream:
        """The answer to one prompt, piece by piece as it is made."""
        return Stream(_transport.ask(self._native, *generation(prompt, sampling, stream=True)), self)

    async def agenerate(self, prompt: Prompt, **sampling: Unpack[Sampling]) -> Answer:
        """generate() of one prompt for asyncio; gather several, and they run in one batch."""
        answer = _transport.ask(self._native, *generation(prompt, sampling))
        return answer_of(await _transport.whole_async(answer))

    def astream(self, prompt: Prompt, **sampling: Unpack[Sampling]) -> AsyncStream:
        """stream() for `async for`."""
        return AsyncStream(self.stream(prompt, **sampling))

    # ---- scoring, vectors ----

    @overload
    def score(self, prompts: str, *, top: int = 0, adapter: str | None = None) -> Score: ...
    @overload
    def score(self, prompts: Sequence[int], *, top: int = 0, adapter: str | None = None) -> Score: ...
    @overload
    def score(
        self, prompts: Iterable[str | Sequence[int]], *, top: int = 0, adapter: str | None = None
    ) -> list[Score]: ...

    def score(self, prompts: Any, *, top: int = 0, adapter: str | None = None) -> Score | list[Score]:
        """Log-probabilities of the tokens of texts or lists of ids, with the `top` likeliest at each place (0 to 20)."""
        all_ids = [self.tokenize(each) if isinstance(each, str) else list(each) for each in as_prompts(prompts)]
        wanted = {"max_tokens": 0, "echo": True, "logprobs": top, "adapter": adapter}
        shown = self._ask_all([generation(ids, wanted) for ids in all_ids])
        scores = [score_of(ids, each) for ids, each in zip(all_ids, shown, strict=True)]
        return scores[0] if is_one_prompt(prompts) else scores

    @overload
    def embed(self, inputs: str, **fields: Any) -> list[float]: ...
    @overload
    def embed(self, inputs: Sequence[int], **fields: Any) -> list[float]: ...
    @overload
    def embed(self, inputs: Iterable[str | Sequence[int]], **fields: Any) -> list[list[float]]: ...

    def embed(self, inputs: Any, **fields: Any) -> list[float] | list[list[float]]:
        """Vectors of texts or lists of ids, pooled as the checkpoint says. fields: such as dimensions, adapter."""
        if "adapter" in fields:
            fields["model"] = fields.pop("adapter")
        each = as_prompts(inputs)
        chunks = [each[i : i + _EMBEDDING_INPUTS] for i in range(0, len(each), _EMBEDDING_INPUTS)]
        bodies = [{"input": chunk, "encoding_format": "base64", **fields} for chunk in chunks]
        shown = self._ask_all([("/v1/embeddings", body) for body in bodies])
        vectors = [_vector_of(row["embedding"]) for answer in shown for row in answer["data"]]
        return vectors[0] if is_one_prompt(inputs) else vectors

    # ---- text and ids ----

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids of a text. add_special: with the begin and end tokens that the model wants."""
        return self.request("/tokenize", {"prompt": text, "add_special_tokens": add_special})["tokens"]

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens too."""
        return self.request("/detokenize", {"tokens": ids})["prompt"]

    def render(self, prompt: Prompt, **sampling: Unpack[Sampling]) -> Rendered:
        """The prompt as the model would see it: template, tools and tokenizer applied."""
        _, body = generation(prompt, sampling)
        shown = self.request("/render", body)["prompts"][0]
        return Rendered(shown["text"], tuple(shown["tokens"]))

    # ---- about it ----

    @property
    def name(self) -> str:
        """As the server would call it."""
        return self.request("/v1/models")["data"][0]["id"]

    @property
    def context(self) -> int:
        """Tokens of a prompt and its answer together, at most."""
        return self.request("/v1/models")["data"][0]["max_model_len"]

    @property
    def adapters(self) -> list[str]:
        """Names of the adapters that requests may ask for."""
        return [row["id"] for row in self.request("/v1/models")["data"] if row["parent"] is not None]

    @property
    def special_tokens(self) -> dict[str, str | None]:
        """bos_token, eos_token and pad_token, as text; and chat_template."""
        return self.request("/tokenizer_info")

    @property
    def num_running(self) -> int:
        """Answers that are being computed, or wait to be."""
        engine = self.request("/api/headrace/status")["engine"]
        return engine["running"] + engine["waiting"]

    def is_healthy(self) -> bool:
        """False once closed, and while the engine has work but makes no progress."""
        try:
            return self.request("/ready")["ready"]
        except Error:
            return False

    def request(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer to POST path (without a body: GET), as JSON: any route of the server that does not stream."""
        return _transport.whole(_transport.ask(self._native, path, body))

    def _ask_all(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """All their answers, in order, with a window of them at work."""
        running: deque[_native.Answer] = deque()
        shown = []
        try:
            for path, body in requests:
                if len(running) >= _WINDOW:
                    shown.append(_transport.whole(running.popleft()))
                running.append(_transport.ask(self._native, path, body))
            while running:
                shown.append(_transport.whole(running.popleft()))
        finally:
            for answer in running:
                answer.cancel()
        return shown


def _vector_of(text: str) -> list[float]:
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))
