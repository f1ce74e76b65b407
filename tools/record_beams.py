#!/usr/bin/env python3
"""Writes what beam search in transformers' generate() finds with tiny checkpoints of the golden data.

    python tools/record_beams.py TINY OUT.json

TINY holds the checkpoints; OUT.json is committed as tests/data/beams.json and read by tests/golden/beam_test.cpp. Needs torch
and transformers, in an environment of its own: nothing of it is part of the build. Searches without a cache, in float64;
one whose outputs are others in float32 is left out, and said so.
"""
import argparse
import json
import os
import pathlib

os.environ.setdefault("TQDM_DISABLE", "1")
import torch
import transformers

transformers.logging.set_verbosity_error()

# Full attention, windows, experts, recurrent states.
MODELS = ["llama", "gemma3", "olmoe", "qwen3_next"]
# Many end ids, so that hypotheses of many lengths compete.
ENDS = [2, *range(5, 256, 11)]
CASES = [
    dict(num_beams=1, num_return_sequences=1, early_stopping=False, length_penalty=1.0, ends=[2]),
    dict(num_beams=4, num_return_sequences=4, early_stopping=False, length_penalty=1.0, ends=[2]),
    dict(num_beams=3, num_return_sequences=2, early_stopping=False, length_penalty=1.0, ends=ENDS),
    dict(num_beams=4, num_return_sequences=4, early_stopping=True, length_penalty=1.0, ends=ENDS),
    dict(num_beams=5, num_return_sequences=3, early_stopping="never", length_penalty=2.0, ends=ENDS),
    dict(num_beams=4, num_return_sequences=1, early_stopping="never", length_penalty=0.0, ends=ENDS),
    dict(num_beams=2, num_return_sequences=2, early_stopping=False, length_penalty=-1.0, ends=ENDS),
    dict(num_beams=8, num_return_sequences=8, early_stopping=False, length_penalty=0.5, ends=ENDS, repetition_penalty=1.3),
    dict(num_beams=4, num_return_sequences=2, early_stopping=True, length_penalty=1.0, ends=ENDS, min_new_tokens=6),
]
MAX_NEW_TOKENS = 24


def search(model, prompt, case):
    case = dict(case)
    ends = case.pop("ends")
    out = model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=MAX_NEW_TOKENS, eos_token_id=ends, pad_token_id=0, use_cache=False,
        return_dict_in_generate=True, output_scores=True, **case)
    found = []
    scores = getattr(out, "sequences_scores", None)
    for i, sequence in enumerate(out.sequences):
        ids = sequence[len(prompt):].tolist()
        stop = next((k for k, token in enumerate(ids) if token in ends), None)
        found.append({"ids": ids[: stop if stop is not None else MAX_NEW_TOKENS], "stop_id": ids[stop] if stop is not None else -1,
                      "score": float(scores[i]) if scores is not None else None})
    return found


def record(folder):
    expected = json.loads((folder / "expect.json").read_text())
    models = [transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
              for dtype in (torch.float64, torch.float32)]
    for number, prompt in enumerate(expected["prompts"]):
        for case in CASES:
            wide, narrow = (search(model, prompt["ids"], case) for model in models)
            if [each["ids"] for each in wide] != [each["ids"] for each in narrow]:
                print(f"{folder.name}: prompt {number} left out with {case}")
                continue
            yield {"model": folder.name, "prompt": number, "max_new_tokens": MAX_NEW_TOKENS, **case, "found": wide}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiny", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    with torch.no_grad():
        cases = [case for name in MODELS for case in record(options.tiny / name)]
    source = f"transformers {transformers.__version__}, torch {torch.__version__}, float64, eager attention, no cache"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    options.out.write_text(f'{{"source": {json.dumps(source)}, "cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} searches")


if __name__ == "__main__":
    main()
