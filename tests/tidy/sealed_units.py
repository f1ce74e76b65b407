"""Checks that the instruction-set objects are sealed: one exported symbol, no weak symbols.

    sealed_units.py BUILD_FOLDER

A weak symbol in a unit compiled for AVX-512 could replace the same function everywhere else, and a
processor without it would die in code that is no kernel. Exit 0 when every unit is sealed.
"""

import pathlib
import re
import subprocess
import sys

# Folder and name of a probe's source: what it exports.
PROBES = {"probe/avx2": "kAvx2Probes", "probe/avx512": "kAvx512Probes", "probe/amx": "kAmxProbes"}
# Kernels: the object libraries kernels_UNIT (cmake/kernels.cmake), one symbol for each part.
LIBRARY = re.compile(r"/kernels_(\w+)\.dir/.*/parts/(\w+)\.cpp\.o$")
IN_TESTS = {"amx_model"}  # built on models of instructions, which are ordinary code
# Plain C functions that a compiler may call on its own account.
ALLOWED_IMPORTS = {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}
SANITIZER_PREFIXES = ("__asan_", "__ubsan_", "__tsan_", "__sanitizer_", "__sancov_", "__gcov_")


def symbols(path):
    listing = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        kind, name = line.split()[-2:]
        yield kind, name


def part_symbol(unit, part):
    """headrace::cpu::UNIT::kPartName, mangled."""
    name = "k" + "".join(word.capitalize() for word in part.split("_"))
    return f"_ZN8headrace3cpu{len(unit)}{unit}{len(name)}{name}E"


def export_of(path):
    """The symbol that an object exports, or None where it is no sealed unit."""
    library = LIBRARY.search(str(path))
    if library:
        unit, part = library.groups()
        return None if unit in IN_TESTS else part_symbol(unit, part)
    return PROBES.get(f"{path.parent.name}/{path.name.removesuffix('.cpp.o')}")


def problems(path, export):
    exported = []
    for kind, name in symbols(path):
        if name.startswith(SANITIZER_PREFIXES):
            continue
        if kind in "uvVwW":
            yield f"{path.name}: weak symbol {name}"
        elif kind == "U" and name not in ALLOWED_IMPORTS:
            yield f"{path.name}: needs {name}, a unit calls nothing outside itself"
        elif kind.isupper() and kind != "U":
            exported.append(name)
    if len(exported) != 1 or export not in exported[0]:
        yield f"{path.name}: exports {exported}, needed only {export}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    objects = [path for path in pathlib.Path(sys.argv[1]).rglob("*.cpp.o") if export_of(path)]
    if not objects:
        print("sealed units: no objects built yet")
        return 0
    found = [text for path in objects for text in problems(path, export_of(path))]
    for text in found:
        print(text)
    print(f"sealed units: {len(objects)} objects, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
