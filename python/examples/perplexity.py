"""The perplexity of a text file, window by window: python perplexity.py MODEL FILE"""

import math
import sys
from pathlib import Path

import headrace

kWindow = 512

with headrace.LLM(sys.argv[1]) as llm:
    ids = llm.tokenize(Path(sys.argv[2]).read_text(), add_special=False)
    windows = [ids[i : i + kWindow] for i in range(0, len(ids), kWindow)]
    scores = [score for score in llm.score(windows) if len(score.ids) > 1]
    scored = sum(len(score.ids) - 1 for score in scores)
    print(f"perplexity {math.exp(-sum(score.total for score in scores) / scored):.3f} over {scored} tokens")
