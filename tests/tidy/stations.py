"""The order of folders, as data, and what follows from includes: order, rings of headers, cycles of units.

A station is a folder of src, nested or not; a file includes stations of its own row of ORDER or of rows
before it, and of these only what TABLE lets its top folder include. A unit is a header and the source of the
same name; units do not include each other, not even by way of others.
"""

import os
import re

# Left (first) to right; a folder never includes what stands after it.
ORDER = [
    "base",
    "checkpoint", "checkpoint/hub",
    "backend", "backend/cpu/team", "backend/cpu/kernels", "backend/cpu/kernels/generic", "backend/cpu/kernels/amx",
    "backend/cpu/kernels/parts", "backend/cpu/kernels/reference", "backend/cpu/verify", "backend/cpu",
    "model/config", "model",
    "engine/tiers", "engine",
    "text", "lab",
    "server/http", "server/api/parts", "server/api", "server/api/openai", "server/api/responses", "server/api/anthropic", "server/api/ollama",
    "server/api/llamacpp", "server/telemetry", "server/lab", "server",
    "verify", "bench/probe", "bench", "bench/serve",
    "options", "cli", "main",
]
# Files whose place is not their folder's.
PLACES = [
    (re.compile(r"src/option\w*\.(?:h|cpp)$"), "options"),
    (re.compile(r"src/main\.cpp$"), "main"),
    (re.compile(r"src/engine/(?:keyed_digest|kv_tier)\.h$"), "engine/tiers"),
]
_PATH = ["base", "checkpoint", "backend", "model", "engine", "server"]
# What a top folder may include.
TABLE = {name: set(_PATH[:i + 1]) for i, name in enumerate(_PATH)}
TABLE["text"] = {"base", "text"}
TABLE["server"] |= {"text", "lab"}
TABLE["verify"] = {"base", "checkpoint", "backend", "model", "text", "verify"}
TABLE["bench"] = {"base", "checkpoint", "backend", "model", "verify", "bench"}
TABLE["lab"] = {"base", "lab"}
TABLE["options"] = {"base", "options"}
TABLE["cli"] = set(_PATH) | {"text", "verify", "bench", "lab", "options", "cli"}
TABLE["main"] = TABLE["cli"] | {"main"}
# Single headers beside the table: of other parts, and generated ones.
EXTRA = {("engine", "text/constraint.h"), ("text", "textkit.h"), ("cli", "build_info.h")}
# What the tests of a folder may include besides: the files and programs that its parts are made for.
TESTS_TABLE = {"text": {"checkpoint"}, "bench": {"server"}}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)


def includes(text):
    """(header, line) of each include in quotes."""
    return [(m.group(1), text.count("\n", 0, m.start()) + 1) for m in _INCLUDE.finditer(text)]


def station_of(path):
    """The row of ORDER that a file below src belongs to; its folder where there is none."""
    for pattern, station in PLACES:
        if pattern.search(path):
            return station
    return os.path.dirname(path).removeprefix("src/")


def top_of(station):
    return station.split("/")[0]


def order_problems(path, text, is_test):
    """(line, message) for each include that points back, or to a folder that is not this one's business."""
    station = station_of(path)
    top = top_of(station)
    if top not in TABLE or (station not in ORDER and not is_test):
        yield 1, f"src/{station} has no place in the order of folders (tests/tidy/stations.py)"
        return
    allowed = TABLE[top] | (TESTS_TABLE.get(top, set()) if is_test else set())
    for header, line in includes(text):
        if (top, header) in EXTRA:
            continue
        target = station_of("src/" + header)
        if top_of(target) not in allowed:
            yield line, f'src/{station} may not include "{header}" (only {", ".join(sorted(allowed))})'
        elif not is_test and target in ORDER and ORDER.index(target) > ORDER.index(station):
            yield line, f'src/{station} may not include "{header}": {target} stands after it'


def _rings(graph):
    """Strongly connected parts of more than one node, each sorted; graph: node -> set of nodes."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(start):
        work = [(start, iter(sorted(graph.get(start, ()))))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    if len(part) > 1:
                        found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def _edges(files):
    return [(path, "src/" + header) for path, text in files.items() for header, _ in includes(text)
            if "src/" + header in files]


def header_rings(files):
    """Rings of headers that include each other; files: path -> text, of the product."""
    graph = {}
    for path, target in _edges(files):
        if path.endswith(".h"):
            graph.setdefault(path, set()).add(target)
    return _rings(graph)


def unit_cycles(files):
    """Cycles of units; a unit is named by its path without the suffix."""
    graph = {}
    for path, target in _edges(files):
        unit, used = os.path.splitext(path)[0], os.path.splitext(target)[0]
        if unit != used:
            graph.setdefault(unit, set()).add(used)
    return _rings(graph)
