"""Makes mutated copies of kernel headers from the table in rules.py.

    mutate.py KERNELS OUT

Reads headers below the folder KERNELS and writes their copies to OUT/backend/cpu/kernels, which a
compiler searches first, and the table of bugs to OUT/seeded_bugs.h. An edit whose text does not
occur exactly once is an error: the source has changed, and the rule must follow it.
"""

import pathlib
import re
import sys

import rules

BUGS_HEADER = "seeded_bugs.h"


class RuleError(Exception):
    pass


def pattern_of(text):
    """The text with any white space where it has some, and between marks and words."""
    tokens = re.findall(r"\w+|[^\w\s]", text)
    return re.compile(r"(?<!\w)" * tokens[0].isidentifier() + r"\s*".join(re.escape(token) for token in tokens) +
                      r"(?!\w)" * tokens[-1].isidentifier())


def edit(source, what, header, find, replacement, table="tests/differential/mutants/rules.py"):
    """source with the only occurrence of `find` replaced. table: the file of the rules, for the message."""
    found = list(pattern_of(find).finditer(source))
    if len(found) != 1:
        raise RuleError(f"{what}: its text occurs {len(found)} times in {header}, needed once; the header has "
                        f"changed, so {table} must follow: {find}")
    return source[:found[0].start()] + replacement + source[found[0].end():]


def check_table(bugs):
    names = [bug.name for bug in bugs]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(f"two bugs are named '{name}'")
    for bug in bugs:
        if not any(re.search(r"\bBUG\b", replacement) for _, replacement in bug.edits):
            raise RuleError(f"bug '{bug.name}' has no BUG in a replacement: nothing would switch it on")


def mutated(sources, bugs, narrowings):
    """The headers that rules touch, rewritten: {header: text}. sources: header -> text."""
    check_table(bugs)
    texts = {}

    def apply(what, header, find, replacement):
        texts[header] = edit(texts.get(header, None) or sources(header), what, header, find, replacement)

    for number, bug in enumerate(bugs):
        for find, replacement in bug.edits:
            switch = re.sub(r"\bBUG\b", f"mutant({number})", replacement)
            apply(f"bug '{bug.name}'", bug.header, find, switch)
    for header, find, replacement in narrowings:
        apply("narrowing", header, find, replacement)
    return {header: text.replace("#pragma once", f'#pragma once\n\n#include "{BUGS_HEADER}"', 1)
            for header, text in texts.items()}


def bugs_header(bugs):
    rows = "".join(f'    {{"{bug.name}", "{bug.row}"}},\n' for bug in bugs)
    return f"""// Made by mutate.py: the seeded bugs, by the numbers that switch them on.
#pragma once

namespace headrace::cpu {{

struct SeededBug {{
  const char* name;
  const char* row;  // the kernel row that is tried first
}};
inline constexpr SeededBug kSeededBugs[] = {{
{rows}}};

extern int active_bug;  // in kSeededBugs; -1: none

namespace {{

inline bool mutant(int bug) {{ return bug == active_bug; }}

constexpr bool same_text(const char* a, const char* b) {{
  for (; *a == *b && *a != '\\0'; ++a) ++b;
  return *a == *b;
}}
constexpr bool has_bugs(const char* row) {{
  for (const SeededBug& bug : kSeededBugs) {{
    if (same_text(bug.row, row)) return true;
  }}
  return false;
}}

}}  // namespace
}}  // namespace headrace::cpu
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    kernels, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    try:
        headers = mutated(lambda header: (kernels / header).read_text(encoding="utf-8"), rules.BUGS,
                          rules.NARROWINGS)
    except RuleError as error:
        sys.exit(f"seeded bugs: {error}")
    for header, text in headers.items():
        write(out / "backend/cpu/kernels" / header, text)
    write(out / BUGS_HEADER, bugs_header(rules.BUGS))


if __name__ == "__main__":
    main()
