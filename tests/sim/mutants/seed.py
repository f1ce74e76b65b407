"""Makes the engine's sources with switchable bugs from the table in engine_bugs.py.

    seed.py ENGINE OUT    copies of the sources of the folder ENGINE in OUT/engine, and OUT/seeded_bugs.h
    seed.py ENGINE        only checks that each rule still fits its source

An edit whose text does not occur exactly once is an error: the source has changed, and the rule must follow it.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "differential" / "mutants"))

import engine_bugs
import mutate

TABLE = "tests/sim/mutants/engine_bugs.py"
SWITCHES = """// Made by seed.py. The environment names the bug that is on; none: the engine as it is.
#pragma once

#include <cstdlib>

namespace headrace {

inline bool seeded_bug(int number) {
  static const int active = [] {
    const char* text = std::getenv("HEADRACE_SEEDED_BUG");
    return text == nullptr ? -1 : std::atoi(text);
  }();
  return number == active;
}

}  // namespace headrace
"""


def seeded(sources, bugs):
    """{file: text} of all sources, with the bugs in them. No two change the same text."""
    mutate.check_table(bugs)
    places = {}  # by file: (begin, end, text instead)
    for number, bug in enumerate(bugs):
        for file, (find, replacement) in zip(bug.files, bug.edits):
            source = sources[file]
            mutate.edit(source, f"bug '{bug.name}'", file, find, "", TABLE)
            match = mutate.pattern_of(find).search(source)
            switch = re.sub(r"\bBUG\b", f"seeded_bug({number})", replacement)
            places.setdefault(file, []).append((match.start(), match.end(), switch, bug.name))
    texts = dict(sources)
    for file, edits in places.items():
        text, at = '#include "seeded_bugs.h"\n', 0
        for begin, end, switch, name in sorted(edits):
            if begin < at:
                raise mutate.RuleError(f"bug '{name}' changes text of {file} that another bug of {TABLE} changes")
            text += sources[file][at:begin] + switch
            at = end
        texts[file] = text + sources[file][at:]
    return texts


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    engine = pathlib.Path(sys.argv[1])
    sources = {path.name: path.read_text(encoding="utf-8") for path in engine.glob("*.cpp")
               if not path.name.endswith("_test.cpp")}
    try:
        texts = seeded(sources, engine_bugs.BUGS)
    except (mutate.RuleError, KeyError) as error:
        sys.exit(f"seeded bugs: {error}")
    if len(sys.argv) == 2:
        return print(f"{len(engine_bugs.BUGS)} seeded bugs fit the engine's sources")
    out = pathlib.Path(sys.argv[2])
    for name, text in texts.items():
        mutate.write(out / "engine" / name, text)
    mutate.write(out / mutate.BUGS_HEADER, SWITCHES)


if __name__ == "__main__":
    main()
