"""Profiles of a running server: what they hold, who may ask, and that answers stay the same."""

import threading
import time

import httpx
import pytest


def ask(server, key=None, **body):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.post(server.url + "/api/headrace/profile", json=body, headers=headers)


def answer(server, seed=3):
    body = {"prompt": "one two three", "max_tokens": 40, "ignore_eos": True, "seed": seed, "temperature": 1, "logprobs": 3}
    choice = httpx.post(server.url + "/v1/completions", json=body).json()["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def profiled(server, work, **body):
    """The profile of steps that `work`, done again and again, makes."""
    answers = []
    asked = threading.Thread(target=lambda: answers.append(ask(server, **body)))
    asked.start()
    while asked.is_alive():
        work()
    asked.join()
    return answers[0]


def test_answers_are_the_same_while_their_steps_are_profiled(server):
    plain = answer(server)
    seen = []
    response = profiled(server, lambda: seen.append(answer(server)), steps=100, timeout=60)
    assert response.status_code == 200, response.text
    assert seen and all(each == plain for each in seen)
    report = response.json()
    assert report["complete"] and len(report["steps"]) == 100
    ends = 0
    for step in report["steps"]:
        assert step["start_us"] >= ends - 1
        ends = step["start_us"] + step["us"]
        forward = next(part for part in step["parts"] if part[0] == "forward")
        ops = step["ops"]
        assert ops and ops[0][3] >= forward[1] - 1
        assert ops[-1][3] + ops[-1][4] <= forward[1] + forward[2] + 1
        assert sum(op[4] for op in ops) <= forward[2] + 1 + 0.1 * len(ops)
    for phase in report["phases"]:
        assert sum(row["us"] for row in phase["ops"]) + phase["between_ops_us"] == pytest.approx(
            phase["parts"]["forward"], rel=1e-9)


def test_an_idle_server_says_that_nothing_ran(server):
    server.wait_until_idle()
    response = ask(server, steps=5, timeout=0.05)
    assert response.status_code == 503
    assert "ran within 0.05 s (ask while it answers requests)" in response.json()["error"]["message"]


def test_fewer_steps_than_asked_for_are_told_when_the_time_is_over(server):
    server.wait_until_idle()
    responses = []
    asked = threading.Thread(target=lambda: responses.append(ask(server, steps=1000, timeout=3)))
    asked.start()
    end = time.monotonic() + 60
    while asked.is_alive() and time.monotonic() < end:
        httpx.post(server.url + "/v1/completions", json={"prompt": "a", "max_tokens": 1})
        time.sleep(0.1)
    asked.join()
    report = responses[0].json()
    assert responses[0].status_code == 200 and not report["complete"] and 0 < len(report["steps"]) < 1000


def test_it_is_a_matter_of_the_administration(serve, tmp_path):
    file = tmp_path / "keys"
    file.write_text("plain-key\n")
    with serve("--context", "256", "--api-key-file", str(file)) as server:
        assert ask(server, steps=5, timeout=0.05).status_code == 401
        assert httpx.get(server.url + "/profile").status_code in (200, 404)  # the page itself is for all


@pytest.mark.parametrize("body", [{}, {"steps": 0}, {"steps": 1001}, {"steps": "5"}, {"steps": 1, "timeout": -1}, {"steps": 1, "timeout": 301},
                                  {"step": 3}, {"steps": 1, "model": 7}])
def test_bad_input_is_refused(server, body):
    response = ask(server, **body)
    assert response.status_code == 400 and response.json()["error"]["message"]
