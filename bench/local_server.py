"""Servers on this machine, for the programs of this folder: started on a free port, asked for their metrics, loaded, ended."""

import json
import os
import re
import subprocess

import httpx


class LocalServer:
    """`headrace serve MODEL OPTION...` while a with block lasts. url; process."""

    def __init__(self, binary, model, *options):
        command = [str(binary), "serve", str(model), "--port", "0", "--quiet", *map(str, options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                self.url = found.group()
                break
        if self.url is None:
            raise SystemExit(f"the server did not start: {' '.join(command)}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def metrics(self, key=None):
        """Sums over the series of each name and, for buckets, edge ("name:0.1"). key: where the server wants one."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = httpx.get(self.url + "/metrics", headers=headers, timeout=60)
        answer.raise_for_status()
        found = {}
        for line in answer.text.splitlines():
            if match := re.fullmatch(r"([\w:]+)\{(.*)\} (\S+)", line):
                edge = re.search(r'le="([^"]+)"', match[2])
                name = match[1] + (":" + edge[1] if edge else "")
                found[name] = found.get(name, 0) + float(match[3])
        return found

    def processor_seconds(self):
        """That its threads have used so far."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load_command(binary, url, clients, prompt, answer, seconds, *options):
    """`headrace bench serve`, closed loop: each client asks again when it has its answer. Lengths in tokens."""
    return [str(binary), "bench", "serve", url, "--load", f"closed:{clients}", "--prompt-tokens", str(prompt), "--answer-tokens",
            str(answer), "--duration", str(seconds), "--json", *map(str, options)]


def stage_of(command):
    """What such a command found; ends the program where a request was not answered."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    stage, = json.loads(done.stdout)["stages"]
    if stage["failed"] or stage["refused"]:
        raise SystemExit(f"{command[3]}: {stage['failed']} requests failed, {stage['refused']} were refused: {stage.get('first_error')}")
    return stage
