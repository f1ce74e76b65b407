"""Rules of the house that no compiler checks. tidy.py [--build DIR]: exit status 1 and one line per finding.

Files of the top folder; folder order of includes, rings of headers and units; share of tests; length of functions and
files; parameters; width of lines; calls, words and paths that do not belong; sealed instruction-set objects (with --build). An exception is written at
the place, with its reason:  // tidy: RULE because REASON
"""

import argparse
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import cpp_scan
import stations

ROOT = Path(__file__).resolve().parents[2]

MAX_FUNCTION = 70
MAX_P90_FUNCTION = 20  # nine functions of ten are at most this long
MIN_TEST_RATIO = 0.70  # lines of tests per line of product
MAX_FILE, MAX_TABLE_FILE = 700, 1000
MAX_PARAMETERS = 6
MAX_COLUMNS = 100
TABLE_FILES = {"families.cpp", "dtype.cpp", "options.cpp", "quants.cpp"}

# Split so that this file does not hold what it looks for.
HOSTS = [".".join(parts) for parts in (
    ("pypi", "org"), ("pythonhosted", "org"), ("crates", "io"), ("npmjs", "org"), ("npmjs", "com"),
    ("deb", "debian", "org"), ("security", "debian", "org"), ("golang", "org"), ("maven", "org"))]
PATHS = re.compile(r"(?<![\w.$})/*\-])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me|tm" + r"p)/\w")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
ENVIRONMENT_FILES = {"src/cli/config_file.cpp", "src/options.cpp", "src/checkpoint/hub/hub.cpp"}
OUTPUT = re.compile(r"\bstd::(?:cout|cerr|clog)\b|(?<![\w:])(?:std::)?(?:printf|puts|putchar)\s*\(")
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)
MACROS = {"CHECK", "DCHECK", "TRY", "LOG"}
EXCEPTION = re.compile(r"tidy: ([\w-]+) because \w+")

ROOT_FILES = {".clang-format", ".clang-tidy", ".gitignore", "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "LICENSE",
              "Makefile", "README.md"}
TEXT_SUFFIXES = {".h", ".cpp", ".py", ".sh", ".rs", ".toml", ".md", ".txt", ".cmake", ".json", ".ts", ".js", ".mjs", ".svelte",
                 ".html", ".css", ".yml", ".yaml", ""}
SOURCE_SUFFIXES = (".h", ".cpp", ".py", ".mjs", ".rs")
GENERATED = {"Cargo.lock", "LICENSE"}


class Finding:
    def __init__(self, rule, path, line, message):
        self.rule, self.path, self.line, self.message = rule, path, line, message

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def is_test(path):
    name = os.path.basename(path)
    return (name.endswith("_test.cpp") or name.startswith(("test_", "test-")) or "/testing/" in path or
            path.startswith(("tests/", "bench/", "python/tests/")))


def is_product(path):
    """Is it part of what runs: the program, the library of texts and the Python package?"""
    if path.startswith("python/") and not is_test(path):
        return path.startswith(("python/native/", "python/headrace/")) and path.endswith((".h", ".cpp", ".py", ".pyi"))
    return path.startswith(("src/", "textkit/")) and path.endswith((".h", ".cpp", ".rs")) and not is_test(path)


def is_kernel(path):
    return "/kernels/" in path


def check_includes(path, text):
    if not path.startswith("src/"):
        return
    for line, message in stations.order_problems(path, text, is_test(path)):
        yield Finding("folder" if "no place" in message else "include-order", path, line, message)


def check_device_memory(path, text):
    """Device pointers are addresses for backends alone (docs/adr/0034)."""
    if not path.startswith("src/") or path.startswith("src/backend/") or is_test(path):
        return
    for match in re.finditer(r'#\s*include\s+"backend/(device_access|host_backend)\.h"', text):
        yield Finding("device-memory", path, line_of(text, match.start()),
                      f"only src/backend may include backend/{match.group(1)}.h: ask the backend for bytes")


def check_sizes(path, text):
    lines = text.split("\n")
    num_lines = len(lines) - (lines[-1] == "")
    limit = MAX_TABLE_FILE if is_kernel(path) or os.path.basename(path) in TABLE_FILES else MAX_FILE
    if num_lines > limit:
        yield Finding("file-length", path, limit, f"{num_lines} lines, at most {limit}")
    for function in cpp_scan.functions(text):
        if function.num_lines > MAX_FUNCTION:
            yield Finding("function-length", path, function.first_line,
                          f"{function.name} has {function.num_lines} lines, at most {MAX_FUNCTION}")
        if function.num_parameters > MAX_PARAMETERS and not is_kernel(path):
            yield Finding("parameters", path, function.first_line,
                          f"{function.name} has {function.num_parameters} parameters, at most {MAX_PARAMETERS}")


def check_width(path, text):
    formatted = True
    for number, line in enumerate(text.split("\n"), 1):
        if "clang-format off" in line or "clang-format on" in line:
            formatted = "clang-format on" in line
        if formatted and len(line) > MAX_COLUMNS and "R\"" not in line and "://" not in line:
            yield Finding("line-width", path, number, f"{len(line)} columns, at most {MAX_COLUMNS}")


def check_calls(path, text):
    code = cpp_scan.strip(text)
    if not is_test(path) and path not in ENVIRONMENT_FILES:
        for match in GETENV.finditer(code):
            yield Finding("environment", path, line_of(code, match.start()),
                          "options come from the table in src/options.cpp")
    if path.startswith("src/") and not path.startswith(("src/cli/", "src/main.cpp")) and not is_test(path):
        for match in OUTPUT.finditer(code):
            yield Finding("output", path, line_of(code, match.start()), "only src/cli prints; elsewhere use LOG")
    if path.startswith("src/") and not is_kernel(path):
        for match in MACRO.finditer(code):
            if match.group(1) not in MACROS and not match.group(1).startswith("HEADRACE_TRY_"):
                yield Finding("macro", path, line_of(code, match.start()),
                              f"{match.group(1)} (only {', '.join(sorted(MACROS))})")


def check_header(path, text):
    if not text.startswith("//"):
        yield Finding("contract", path, 1, "a header starts with a comment: purpose, units, owner, errors")
    if "#pragma once" not in text:
        yield Finding("pragma", path, 1, "a header has #pragma once")


def check_words(path, text):
    for host in HOSTS:
        for match in re.finditer(r"(?<![\w-])" + re.escape(host) + r"\b", text):
            yield Finding("host", path, line_of(text, match.start()), f"names a package registry ({host})")
    for match in PATHS.finditer(text):
        yield Finding("path", path, line_of(text, match.start()), f"names a path of one machine ({match.group(0)}...)")
    for match in UNFINISHED.finditer(text):
        yield Finding("unfinished", path, line_of(text, match.start()), match.group(0))


def excused(finding, lines):
    """Is there an exception with a reason on the line of the finding or just above it?"""
    for line in lines[max(0, finding.line - 3):finding.line]:
        match = EXCEPTION.search(line)
        if match and match.group(1) == finding.rule:
            return True
    return False


def check_file(path, text):
    """All findings in one file; `path` is relative to the repository."""
    checks = [check_words]
    if path.endswith((".h", ".cpp")) and path.startswith(("src/", "tests/", "bench/", "python/native/")):
        checks += [check_includes, check_device_memory, check_sizes, check_width, check_calls]
        if path.endswith(".h"):
            checks.append(check_header)
    lines = text.split("\n")
    return [finding for check in checks for finding in check(path, text) if not excused(finding, lines)]


def check_root(paths):
    """What a command left in the top folder would be committed with the rest."""
    for path in paths:
        if "/" not in path and path not in ROOT_FILES:
            yield Finding("root", path, 1, "the top folder holds no such file; if it belongs there, name it in ROOT_FILES")


def check_graph(files):
    """Rings of headers and cycles of units; files: path -> text."""
    product = {path: text for path, text in files.items()
               if path.startswith("src/") and path.endswith((".h", ".cpp")) and not is_test(path)}
    for ring in stations.header_rings(product):
        yield Finding("header-ring", ring[0], 1, "these headers include each other: " + ", ".join(ring))
    for cycle in stations.unit_cycles(product):
        yield Finding("unit-cycle", cycle[0], 1, "these units include each other: " + ", ".join(cycle))


def percentile(sorted_values, share):
    """The smallest value that at least this share of the values does not exceed."""
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)] if sorted_values else 0


class Sums:
    """Figures of the whole repository: lengths of the product's functions, lines of tests and product."""

    def __init__(self):
        self.lengths, self.test_lines, self.product_lines = [], 0, 0

    def add(self, path, text):
        num_lines = text.count("\n")
        if is_product(path):
            tests_at = text.find("#[cfg(test)]") if path.endswith(".rs") else -1
            inner = text.count("\n", tests_at) if tests_at >= 0 else 0
            self.test_lines += inner
            self.product_lines += num_lines - inner
            if path.endswith((".h", ".cpp")):
                self.lengths += [function.num_lines for function in cpp_scan.functions(text)]
        elif is_test(path) and not path.startswith("bench/") and path.endswith(SOURCE_SUFFIXES):
            self.test_lines += num_lines

    def ratio(self):
        return self.test_lines / max(1, self.product_lines)

    def findings(self):
        longest = percentile(sorted(self.lengths), 0.9)
        if longest > MAX_P90_FUNCTION:
            yield Finding("function-lengths", "src", 0, f"p90 is {longest} lines, at most {MAX_P90_FUNCTION}")
        if self.ratio() < MIN_TEST_RATIO:
            yield Finding("test-ratio", "tests", 0,
                          f"{self.ratio():.2f} lines of tests per line of product, at least {MIN_TEST_RATIO:.2f}")

    def __str__(self):
        ordered = sorted(self.lengths)
        return (f"functions of the product: {len(ordered)}, lines p50 {percentile(ordered, 0.5)}, "
                f"p90 {percentile(ordered, 0.9)}, max {percentile(ordered, 1)}; tests: {self.test_lines} lines to "
                f"{self.product_lines}, ratio {self.ratio():.3f}")


def repository_files():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True).stdout.decode().split("\0")
    return sorted(path for path in listed if path and (ROOT / path).is_file())


def is_text(path):
    return os.path.splitext(path)[1] in TEXT_SUFFIXES and os.path.basename(path) not in GENERATED


def check_sealed_units(build):
    script = Path(__file__).with_name("sealed_units.py")
    if not script.exists():
        return []
    done = subprocess.run([sys.executable, str(script), build], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode == 0:
        return []
    return [Finding("sealed", build, 0, (done.stdout + done.stderr).strip() or "objects are not sealed")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", help="build folder whose instruction-set objects are checked")
    arguments = parser.parse_args()
    every_file = repository_files()
    files = [path for path in every_file if is_text(path)]
    texts = {path: (ROOT / path).read_text(encoding="utf-8", errors="replace") for path in files}
    sums = Sums()
    findings = []
    for path, text in texts.items():
        findings += check_file(path, text)
        sums.add(path, text)
    findings += [*check_root(every_file), *check_graph(texts), *sums.findings()]
    if arguments.build:
        findings += check_sealed_units(arguments.build)
    for finding in findings:
        print(finding)
    print(sums)
    print(f"tidy: {len(files)} files, {len(findings)} findings")
    return 1 if findings or not files else 0


if __name__ == "__main__":
    sys.exit(main())
