"""The laboratory over HTTP: written there, run by another process, seen as it happens."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import httpx
import pytest

from conftest import Server, kBinary


class LabServer(Server):
    """`headrace lab serve` in place of a model's server."""

    def __init__(self, folder, *options):
        super().__init__(folder, *options, command=("lab", "serve", "--lab"))
        self.api = self.url + "/api/lab"

    def get(self, path, **how):
        answer = httpx.get(self.api + path, **how)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, action, by="tester", **arguments):
        answer = httpx.post(f"{self.api}/actions/{action}", json={"by": by, **arguments})
        assert answer.status_code == 200, answer.text
        return answer.json()


class Listener:
    """Keeps the events of a stream, on a thread of its own; wait(predicate) returns the first that it is true of."""

    def __init__(self, url, headers=None):
        self.events, self.changed = [], threading.Condition()
        self.response = contextlib.ExitStack()
        stream = self.response.enter_context(httpx.stream("GET", url, headers=headers or {}))
        assert stream.status_code == 200 and stream.headers["content-type"].startswith("text/event-stream")
        threading.Thread(target=self.read, args=(stream,), daemon=True).start()

    def read(self, stream):
        event = {}
        with contextlib.suppress(httpx.HTTPError):
            for line in stream.iter_lines():
                if not line:
                    with self.changed:
                        if "data" in event:
                            self.events.append({**event, "data": json.loads(event["data"])})
                        self.changed.notify_all()
                    event = {}
                elif not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    event[name] = value

    def wait(self, predicate):
        def found():
            return next((event for event in self.events if predicate(event)), None)
        with self.changed:
            assert self.changed.wait_for(found, 120), self.events
            return found()

    def log_ids(self):
        return [int(event["id"]) for event in self.events if event["event"] == "log"]


def prints(after=0, **metrics):
    return [sys.executable, "-c", f"import json, time; time.sleep({after}); print(json.dumps({metrics!r}))"]


def sides(first, second, after=0):
    return [{"name": "one", "command": prints(after, speed=first)}, {"name": "two", "command": prints(after, speed=second)}]


@pytest.fixture
def lab(tmp_path):
    server = LabServer(tmp_path / "lab")
    yield server
    server.stop(signal.SIGKILL)


def run_queue(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return subprocess.run([kBinary, "lab", "run", "--lab", str(tmp_path / "lab"), "--idle-patience", "0", "--idle-share", "1"],
                          env={**environment, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=300)


def test_what_is_asked_over_http_is_run_by_another_process_and_seen_live(lab, tmp_path):
    listener = Listener(lab.api + "/events")
    listener.wait(lambda event: event["event"] == "queue")
    assert lab.post("add_hypothesis", statement="two is faster", metric="speed", predicted=0.2) == {"id": 1}
    # Longer than the server takes to look again: else what ran may have ended before it was seen.
    lab.post("add_experiment", hypothesis=1, title="<one> or two", sides=sides(10, 15, after=0.2))
    lab.post("add_experiment", by="ada", title="later", metric="speed", sides=sides(1, 1), max_rounds=2)
    lab.post("pause", id=2)
    listener.wait(lambda event: event["event"] == "queue" and event["data"]["paused"] == [2])
    ran = run_queue(tmp_path)
    assert ran.returncode == 0, ran.stderr
    listener.wait(lambda event: event["data"].get("subject") == "hypothesis:1" and "validated" in event["data"]["text"])
    assert listener.wait(lambda event: event["event"] == "queue" and event["data"]["running"] == [1])

    overview = lab.get("/overview")
    assert overview["counts"]["experiments"] == {"queued": 1, "running": 0, "done": 1, "failed": 0, "cancelled": 0}
    assert overview["hypotheses"][0]["state"] == "validated" and overview["hypotheses"][0]["belief"] > 0.9
    first = overview["experiments"][0]
    assert first["runs_done"] == 6 and first["effect"]["improvement"] == pytest.approx(0.5)
    shown = lab.get("/experiments/1")
    assert shown["title"] == "<one> or two" and len(shown["runs"]) == 6 and len(shown["effects"][0]["by_round"]) == 3
    assert shown["runs"][0]["metrics"] == {"speed": 10} and shown["difference"][0]["side"] == "two"
    assert [file["name"] for file in shown["runs"][0]["artifacts"]] == ["stderr.txt"]
    artifact = httpx.get(f"{lab.api}/artifacts/{shown['runs'][0]['id']}/stderr.txt")
    assert artifact.status_code == 200 and artifact.headers["content-disposition"] == "attachment"

    log = lab.get("/log")["log"]
    assert {entry["author"] for entry in log} >= {"tester", "ada"}
    listener.wait(lambda event: event.get("id") == str(log[-1]["id"]))
    assert listener.log_ids() == [entry["id"] for entry in log]  # each once, in order
    resumed = Listener(lab.api + "/events?after=0", {"Last-Event-ID": "5"})
    resumed.wait(lambda event: event.get("id") == str(log[-1]["id"]))
    assert resumed.log_ids() == list(range(6, log[-1]["id"] + 1))


def test_a_person_reorders_the_queue(lab):
    for number in range(4):
        lab.post("add_experiment", title=f"number {number + 1}", metric="speed", sides=sides(1, 2))
    for place, experiment in enumerate([3, 1], start=1):
        lab.post("move", id=experiment, place=place)
    lab.post("pin", id=4)
    queue = lab.get("/queue")["queue"]
    assert [place["experiment"] for place in queue] == [4, 3, 1, 2]
    assert [place["reason"] for place in queue][:2] == ["pinned", "moved to place 1"]
    assert lab.post("cancel", id=4)["state"] == "cancelled"
    assert lab.post("rerun", id=4)["state"] == "queued"
    lab.post("add_learning", text="order matters", links=["experiment:4", "option:--threads"])
    graph = lab.get("/graph")
    assert {"from": "learning:1", "to": "option:--threads", "kind": "rests on"} in graph["edges"]
    assert lab.get("/experiments/4")["learnings"][0]["text"] == "order matters"


def test_three_hundred_experiments_are_answered_whole(lab):
    with httpx.Client(timeout=60) as client:
        for number in range(300):
            added = client.post(f"{lab.api}/actions/add_experiment", json={
                "by": "script", "title": f"number {number}", "metric": "speed", "sides": sides(1, number + 1)})
            assert added.status_code == 200, added.text
    assert len(lab.get("/overview")["experiments"]) == 300
    assert len(lab.get("/queue")["queue"]) == 300 and len(lab.get("/graph")["nodes"]) == 300
    assert len(lab.get("/log?limit=7")["log"]) == 7 and lab.get("/log?last=1")["log"][0]["id"] == 300
    listener = Listener(lab.api + "/events?after=0")
    listener.wait(lambda event: event.get("id") == "300")
    assert listener.log_ids() == list(range(1, 301))


def test_a_model_is_served_beside_its_laboratory(serve, tmp_path):
    with serve("--lab", str(tmp_path / "lab")) as server:
        machine = httpx.get(server.url + "/api/lab/machine").json()
        assert machine["cores"] and machine["memory"]["total_bytes"] > 0
        assert machine["engines"][0]["state"] == "ok" and machine["engines"][0]["status"]["engine"]["running"] == 0
        assert httpx.get(server.url + "/api/lab/overview").json()["experiments"] == []
        watching = LabServer(tmp_path / "other", "--engine", server.url)
        try:
            for _ in range(600):
                engine = watching.get("/machine")["engines"][0]
                if engine["state"] != "unknown":
                    break
                threading.Event().wait(0.1)
            assert engine["url"] == server.url and engine["state"] == "ok"
            assert engine["status"]["model"]["id"] == machine["engines"][0]["name"]
        finally:
            watching.stop(signal.SIGKILL)


def test_a_stop_ends_listeners_and_is_clean(lab):
    listener = Listener(lab.api + "/events")
    listener.wait(lambda event: event["event"] == "queue")
    assert lab.stop() == 0


def test_a_page_of_another_origin_may_not_write(lab):
    refused = httpx.post(f"{lab.api}/actions/add_learning", json={"by": "x", "text": "y"}, headers={"Origin": "https://evil.example"})
    assert refused.status_code == 403
    assert lab.get("/log")["log"] == []
