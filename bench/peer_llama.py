"""Times llama.cpp (llama-cpp-python) on the work that bench/peers.py asks for: one JSON request as the only
argument, one JSON object per line as the answer. Token ids are fixed and nothing is sampled, as on our side."""
import json
import math
import sys
import time

import llama_cpp

CHUNK = 512  # tokens of one llama_decode of a prompt: the library's own step


class Runner:
    def __init__(self, request):
        works = request["works"]
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(request["model"].encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {request['model']}")
        sequences = max([w["sequences"] for w in works if w["kind"] == "batch"], default=1)
        longest = max([w.get("tokens", 0) or w["sequences"] * (w["depth"] + w["steps"]) for w in works], default=0)
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = max(longest, 1024) + 256
        parameters.n_batch = max(CHUNK, sequences)
        parameters.n_ubatch = CHUNK
        parameters.n_seq_max = sequences
        parameters.kv_unified = True
        parameters.n_threads = parameters.n_threads_batch = request["threads"]
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not self.context:
            sys.exit("llama.cpp cannot make a context")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(max(CHUNK, sequences), 0, 1)

    def step(self, tokens):
        """tokens: (id, position, sequence, wants logits) of one step."""
        self.batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            sys.exit("llama_decode failed")

    def prompt(self, ids, sequence=0):
        for first in range(0, len(ids), CHUNK):
            part = ids[first:first + CHUNK]
            self.step([(token, first + i, sequence, first + i + 1 == len(ids)) for i, token in enumerate(part)])
        llama_cpp.llama_synchronize(self.context)

    def ids(self, count):
        return [(i * 7919 + 13) % self.vocab_size for i in range(count)]

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)

    def prefill(self, work):
        self.clear()
        ids = self.ids(work["tokens"])
        start = time.perf_counter()
        self.prompt(ids)
        return len(ids) / (time.perf_counter() - start)

    def decode(self, work):
        sequences, depth, steps = work["sequences"], work["depth"], work["steps"]
        self.clear()
        for sequence in range(sequences):
            if depth > 0:
                self.prompt(self.ids(depth), sequence)
        start = time.perf_counter()
        for i in range(steps):
            self.step([(100 + s, depth + i, s, True) for s in range(sequences)])
        llama_cpp.llama_synchronize(self.context)
        return sequences * steps / (time.perf_counter() - start)

    def distance(self, golden):
        """Mean over the prompts of the mean |log-prob difference| over the recorded top lists, and the largest."""
        means, largest = [], 0.0
        for recorded in golden["prompts"]:
            self.clear()
            self.step([(token, i, 0, True) for i, token in enumerate(recorded["ids"])])
            differences = []
            for position, top in enumerate(recorded["top10"]):
                row = llama_cpp.llama_get_logits_ith(self.context, position)
                logits = [row[i] for i in range(self.vocab_size)]
                highest = max(logits)
                total = highest + math.log(sum(math.exp(x - highest) for x in logits))
                differences += [abs(logits[token] - total - expected) for token, expected in top]
            means.append(sum(differences) / len(differences))
            largest = max(largest, *differences)
        return {"mean": sum(means) / len(means), "max": largest}


def main():
    request = json.loads(sys.argv[1])
    runner = Runner(request)
    runner.prefill({"tokens": 256})
    for work in request["works"]:
        speed = runner.prefill(work) if work["kind"] == "prefill" else runner.decode(work)
        print(json.dumps({"work": work["name"], "tok_s": speed}), flush=True)
    if request.get("golden"):
        with open(request["golden"], encoding="utf-8") as file:
            print(json.dumps({"distance": runner.distance(json.load(file))}), flush=True)


if __name__ == "__main__":
    main()
