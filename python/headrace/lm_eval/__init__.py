"""lm-evaluation-harness on a model in this process.

    lm_eval run --model headrace --model_args pretrained=smollm2:135m --tasks arc_easy

Releases of lm_eval without plugins do not know the name yet; then `python -m headrace.lm_eval` takes the same
arguments. From Python it is enough to import this module.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from .._llm import LLM

_log = logging.getLogger(__name__)

#: Requests that are asked at once.
_CHUNK = 256
_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_SAMPLING = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed")

_Pair = tuple[Any, list[int], list[int]]


@register_model("headrace")
class HeadraceLM(TemplateLM):
    """A model of the harness: log-likelihoods from the prompt's own log-probabilities, answers by greedy decoding."""

    def __init__(
        self,
        pretrained: str | None = None,
        *,
        model: str | None = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        prefix_token_id: int | None = None,
        batch_size: object = None,
        max_batch_size: object = None,
        device: object = None,
        llm: LLM | None = None,
        **options: Any,
    ) -> None:
        """pretrained (or model): as for headrace.LLM, which gets `options`; llm: one that is loaded already.

        The engine makes its own batches, on the CPU: batch_size and device mean nothing here.
        """
        super().__init__()
        name = pretrained or model
        if llm is None and name is None:
            raise ValueError("headrace needs a model: --model_args pretrained=PATH_OR_NAME")
        self.llm = llm if llm is not None else LLM(str(name), **options)
        self._max_gen_toks = int(max_gen_toks)
        # A window has a token before those that it scores, which stands in the context too.
        self._max_length = int(max_length or self.llm.context - 1)
        special = self.llm.special_tokens
        self._template = special["chat_template"] or ""
        self._bos = special["bos_token"]
        self._eot = self._id_of(special["eos_token"])
        self._prefix = int(prefix_token_id) if prefix_token_id is not None else self._id_of(self._bos, self._eot)

    def _id_of(self, token: str | None, otherwise: int | None = None) -> int:
        ids = self.llm.tokenize(token, add_special=False) if token else []
        if len(ids) == 1:
            return ids[0]
        if otherwise is None:
            raise ValueError("the model names no end token: give prefix_token_id")
        return otherwise

    # ---- text and ids ----

    @property
    def eot_token_id(self) -> int:
        return self._eot

    @property
    def prefix_token_id(self) -> int:
        return self._prefix

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def max_gen_toks(self) -> int:
        return self._max_gen_toks

    @property
    def tokenizer_name(self) -> str:
        return self.llm.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            add_special_tokens = not (self._bos and string.startswith(self._bos))
        return self.llm.tokenize(string, add_special=add_special_tokens)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self._template if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.llm.render(
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        ).text

    # ---- what is asked ----

    def _loglikelihood_tokens(
        self, requests: Sequence[_Pair], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        # Neighbours share beginnings, which are computed once.
        order = sorted(range(len(requests)), key=lambda i: requests[i][1] + requests[i][2])
        results: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        with tqdm(total=len(requests), desc="loglikelihood", disable=disable_tqdm) as bar:
            for chunk in _chunks(order):
                for i, result in zip(chunk, self._score([requests[i] for i in chunk]), strict=True):
                    results[i] = result
                    if requests[i][0] is not None:
                        self.cache_hook.add_partial("loglikelihood", requests[i][0], result)
                bar.update(len(chunk))
        return results

    def _score(self, requests: Sequence[_Pair]) -> Iterator[tuple[float, bool]]:
        whole = [self._fitting(context + continuation, self.max_length + 1) for _, context, continuation in requests]
        for (_, _, continuation), score in zip(requests, self.llm.score(whole, top=1), strict=True):
            first = len(score.ids) - min(len(continuation), len(score.ids) - 1)
            rows = list(zip(score.logprobs[first:], score.top[first:], strict=True))
            yield sum(row for row, _ in rows), all(row >= max(top.values()) for row, top in rows)

    @staticmethod
    def _fitting(ids: list[int], limit: int) -> list[int]:
        if len(ids) > limit:
            _log.warning("a request of %d tokens is cut from the left to %d", len(ids), limit)
        return ids[-limit:]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        windows, owners = [], []
        for position, request in enumerate(requests):
            ids = self.tok_encode(request.args[0])
            parts = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1)
            windows += [(None, *make_disjoint_window(part)) for part in parts]
            owners += [position] * (len(windows) - len(owners))
        totals = [0.0] * len(requests)
        for owner, (logprob, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm), strict=True):
            totals[owner] += logprob
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        results = [""] * len(requests)
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(i)
        with tqdm(total=len(requests), desc="generate_until", disable=disable_tqdm) as bar:
            for group in groups.values():
                sampling = self._sampling(requests[group[0]].args[1])
                for chunk in _chunks(group):
                    for i, text in zip(chunk, self._continue([requests[i].args[0] for i in chunk], sampling)):
                        results[i] = text
                        self.cache_hook.add_partial("generate_until", requests[i].args, text)
                    bar.update(len(chunk))
        return results

    def _continue(self, contexts: Sequence[str], sampling: dict[str, Any]) -> list[str]:
        room = max(1, self.llm.context - sampling["max_tokens"])
        prompts = [self._fitting(self.tok_encode(context), room) for context in contexts]
        return [answer.text for answer in self.llm.generate(prompts, **sampling)]

    def _sampling(self, given: dict[str, Any]) -> dict[str, Any]:
        """The harness's arguments of generation as ours. Without do_sample: greedy."""
        rest = dict(given)
        limits = [rest.pop(name) for name in _MAX_TOKENS if name in rest]
        until = rest.pop("until", None) or []
        sampling: dict[str, Any] = {
            "max_tokens": int(limits[0]) if limits else self.max_gen_toks,
            "stop": [until] if isinstance(until, str) else [each for each in until if each],
            "temperature": rest.pop("temperature", 1.0),
        }
        if not rest.pop("do_sample", False):
            sampling["temperature"] = 0
        sampling.update({name: rest.pop(name) for name in _SAMPLING if name in rest})
        if rest:
            raise ValueError(f"generation_kwargs {sorted(rest)} are not known here")
        return sampling


def _chunks(items: Sequence[int]) -> Iterator[Sequence[int]]:
    for begin in range(0, len(items), _CHUNK):
        yield items[begin : begin + _CHUNK]
