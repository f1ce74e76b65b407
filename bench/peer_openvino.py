"""Times OpenVINO GenAI on the work that bench/peers.py asks for: one JSON request as the only argument, one JSON
object per line as the answer. It reads the GGUF itself; what it cannot read ends the program with its reason.

The pipeline gives no single steps, so a decode is the time of a generation of steps + 1 tokens less that of one
token; every call has a prompt of its own, and the prefix cache is off. Log-probs come from the model that the
pipeline saves, run by the same plugin with the same defaults."""
import json
import os
import sys
import tempfile
import time

import numpy
import openvino
import openvino_genai


class Runner:
    def __init__(self, request, folder):
        self.folder = folder
        self.threads = request["threads"]
        link = os.path.join(folder, "model.gguf")  # the saved model lies beside it
        os.symlink(os.path.abspath(request["model"]), link)
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.cache_size = 2  # GiB
        scheduler.max_num_batched_tokens = 512
        self.pipeline = openvino_genai.LLMPipeline(
            link, "CPU", scheduler_config=scheduler, enable_save_ov_model=bool(request.get("golden")),
            INFERENCE_NUM_THREADS=self.threads)
        self.random = numpy.random.default_rng(1)

    def seconds(self, sequences, prompt_tokens, new_tokens):
        ids = self.random.integers(100, 20000, size=(sequences, prompt_tokens))
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids.astype(numpy.int64)),
                                                openvino.Tensor(numpy.ones_like(ids, dtype=numpy.int64)))
        config = openvino_genai.GenerationConfig(max_new_tokens=new_tokens, min_new_tokens=new_tokens,
                                                 ignore_eos=True, do_sample=False)
        start = time.perf_counter()
        self.pipeline.generate(inputs, config)
        return time.perf_counter() - start

    def run(self, work):
        if work["kind"] == "prefill":
            return work["tokens"] / self.seconds(1, work["tokens"], 1)
        sequences, prompt = work["sequences"], max(work["depth"], 4)
        first = self.seconds(sequences, prompt, 1)
        whole = self.seconds(sequences, prompt, work["steps"] + 1)
        return sequences * work["steps"] / (whole - first) if whole > first else None

    def distance(self, golden):
        """As in peer_llama.py."""
        saved = [name for name in os.listdir(self.folder) if name.endswith(".xml") and "token" not in name]
        if not saved:
            return None
        core = openvino.Core()
        model = core.compile_model(os.path.join(self.folder, saved[0]), "CPU", {"INFERENCE_NUM_THREADS": self.threads})
        means, largest = [], 0.0
        for recorded in golden["prompts"]:
            ids = numpy.array([recorded["ids"]], dtype=numpy.int64)
            inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids),
                      "position_ids": numpy.arange(ids.shape[1], dtype=numpy.int64)[None],
                      "beam_idx": numpy.zeros(1, dtype=numpy.int32)}
            names = {name for port in model.inputs for name in port.names}
            logits = model.create_infer_request().infer({k: v for k, v in inputs.items() if k in names})[0][0]
            if len(logits) != ids.shape[1]:
                return None  # only the last position's
            logits = logits.astype(numpy.float64)
            highest = logits.max(axis=1, keepdims=True)
            logprobs = logits - highest - numpy.log(numpy.exp(logits - highest).sum(axis=1, keepdims=True))
            differences = [abs(logprobs[position][token] - expected)
                           for position, top in enumerate(recorded["top10"]) for token, expected in top]
            means.append(sum(differences) / len(differences))
            largest = max(largest, *differences)
        return {"mean": float(sum(means) / len(means)), "max": float(largest)}


def main():
    request = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="headrace-openvino-") as folder:
        runner = Runner(request, folder)
        runner.seconds(1, 64, 2)
        for work in request["works"]:
            speed = runner.run(work)
            if speed is not None:
                print(json.dumps({"work": work["name"], "tok_s": speed}), flush=True)
        if request.get("golden"):
            with open(request["golden"], encoding="utf-8") as file:
                distance = runner.distance(json.load(file))
            if distance is not None:
                print(json.dumps({"distance": distance}), flush=True)


if __name__ == "__main__":
    main()
