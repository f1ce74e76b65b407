"""Whatever else an engine does, a request gives the same bytes: each kind of request in each setting, in a table that
docs/composition.md holds. HEADRACE_RECORD=1 writes it anew."""

import asyncio
import json
import os
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from test_adapters import write_adapter

kTable = Path(__file__).resolve().parents[2] / "docs" / "composition.md"
kPrompt = "once upon a time there was a prompt that fills a few blocks of the cache, and then "
kNeighbours = 12
kScored = {"logprobs": 3}
kConstraint = {"guided_regex": "[a-f]{3}(x|y[0-9]){4,20}z"}

# What a request asks for.
kKinds = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 5},
    "greedy, penalties": {"temperature": 0, "repetition_penalty": 1.3, "frequency_penalty": 0.2},
    "greedy, log-probs": {"temperature": 0, **kScored},
    "sampled, log-probs": {"temperature": 0.9, "seed": 6, **kScored},
    "greedy, prompt log-probs": {"temperature": 0, "echo": True, **kScored},
    "sampled, three answers": {"temperature": 0.8, "seed": 7, "n": 3, **kScored},
    "the two best of three beams": {"use_beam_search": True, "n": 2, "best_of": 3},
    "greedy, constraint": {"temperature": 0, **kConstraint},
    "sampled, constraint, log-probs": {"temperature": 0.9, "seed": 8, **kConstraint, **kScored},
    "greedy, adapter": {"temperature": 0, "model": "one"},
    "sampled, adapter, log-probs": {"temperature": 0.9, "seed": 9, "model": "two", **kScored},
}


class Setting(NamedTuple):
    """In what a request runs. Each kind runs twice in it: cold, and found in the cache."""
    options: tuple = ()     # of the server
    num_neighbours: int = 0
    proof: str = ""         # a metric that is not 0 when the setting is what it is called
    restarts: bool = False  # it was asked the same before it was started anew


kPreemptions, kRestored = "vllm:num_preemptions_total", "headrace:kv_tier_restored_tokens_total"
kGuesses = "vllm:spec_decode_num_draft_tokens_total"
kSettings = {
    "alone": Setting(("--speculation", "off")),
    "batch": Setting((), kNeighbours),
    "small steps": Setting(("--batch-tokens", "16", "--max-sequences", "8")),
    "small steps, batch": Setting(("--batch-tokens", "24", "--max-sequences", "16"), kNeighbours),
    "pre-emption": Setting(("--kv-memory", "160K", "--max-sequences", "16"), kNeighbours, kPreemptions),
    "guesses": Setting(("--speculation", "ngram"), 0, kGuesses),
    "guesses, batch": Setting(("--speculation", "ngram", "--max-sequences", "16"), kNeighbours, kGuesses),
    "guesses of a model": Setting(("--draft-model", "MODEL"), kNeighbours, kGuesses),
    "restored from memory": Setting(
        ("--kv-memory", "160K", "--kv-ram", "16M", "--max-sequences", "16"), kNeighbours, kRestored),
    "restored from disk": Setting(("--kv-disk", "FOLDER"), 0, kRestored, restarts=True),
    "all together": Setting(
        ("--kv-memory", "160K", "--kv-ram", "1M", "--kv-disk", "FOLDER", "--batch-tokens", "24", "--max-sequences", "16",
         "--draft-model", "MODEL"),
        kNeighbours, kPreemptions, restarts=True),
}


def body_of(kind, asks):
    return {"prompt": kPrompt + kind, "max_tokens": 48, "ignore_eos": "guided_regex" not in asks, **asks}


def neighbour(number):
    """Others of every sort, some with the same beginning."""
    asks = list(kKinds.values())[number % len(kKinds)]
    return {"prompt": kPrompt[:number * 9] + f"neighbour {number}", "max_tokens": 60 + 5 * number,
            "ignore_eos": "guided_regex" not in asks, **asks, "seed": number}


async def choices_of(client, body):
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    return json.dumps(answer["choices"]), answer["usage"]["prompt_tokens_details"]["cached_tokens"]


async def run_all(url, num_neighbours):
    """Of each kind: what it said cold, and said again; and the tokens that it found the second time."""
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=httpx.Limits(max_connections=None)) as client:
        answers = {}
        for kind, asks in kKinds.items():
            others = [asyncio.create_task(choices_of(client, neighbour(i))) for i in range(num_neighbours)]
            said = [await choices_of(client, body_of(kind, asks)) for _ in range(2)]
            await asyncio.gather(*others)
            answers[kind] = said
        return answers


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(["one", "two"]):
        write_adapter(root / name, seed)
    return "one={0}/one,two={0}/two".format(root)


def rows(expected, found):
    """Lines of the table: a kind, and in each setting whether it said the same cold and again."""
    lines = [f"| request | {' | '.join(kSettings)} |", f"|---|{'---|' * len(kSettings)}"]
    for kind in kKinds:
        cells = []
        for setting in kSettings:
            same = all(text == expected[kind] for text, _ in found[setting][kind])
            cells.append("equal" if same else "DIFFERS")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def page(lines):
    settings = "\n".join(f"- **{name}**: `{' '.join(['serve', *options])}`, {others or 'no'} other requests"
                         f"{', started again' if restarts else ''}."
                         for name, (options, others, _, restarts) in kSettings.items())
    return f"""# What composes

Made by `tests/http/test_composition.py` with `HEADRACE_RECORD=1`. Each request runs in each setting twice: cold, then with what
the cache holds of it. "equal": both times all of its choices, with their texts, tokens, log-probs and reasons, are byte for byte
what a server gave that did nothing else.

{settings}

{chr(10).join(lines)}
"""


def run_in(serve, setting, adapters, places):
    options = [str(places.get(option, option)) for option in setting.options]
    for _ in range(1 + setting.restarts):
        with serve("--context", "256", "--adapter", adapters, *options) as server:
            answers = asyncio.run(run_all(server.url, setting.num_neighbours))
            proof = server.metric(setting.proof) if setting.proof else 1
            assert server.stop() == 0  # what goes to disk is there
    assert proof > 0, setting
    return answers


def test_every_kind_of_request_says_the_same_in_every_setting(serve, model, adapters, tmp_path):
    found = {name: run_in(serve, setting, adapters, {"MODEL": model, "FOLDER": tmp_path / name.replace(" ", "-")})
             for name, setting in kSettings.items()}
    expected = {kind: said[0][0] for kind, said in found["alone"].items()}
    assert len(set(expected.values())) == len(kKinds)
    for kind, said in found["alone"].items():
        if "echo" not in kKinds[kind]:  # whose rows are all computed
            assert said[1][1] > 0, f"{kind}: nothing was found again"
    made = page(rows(expected, found))
    if os.environ.get("HEADRACE_RECORD") == "1":
        kTable.write_text(made)
    assert "DIFFERS" not in made, made
    assert kTable.read_text() == made, "docs/composition.md is of other settings: HEADRACE_RECORD=1 writes it anew"
