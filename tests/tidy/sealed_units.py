"""Checks that the instruction-set objects are sealed: one exported symbol, no weak symbols.

    sealed_units.py BUILD_FOLDER

A weak symbol in a unit compiled for AVX-512 could replace the same function everywhere else, and a
processor without it would die in code that is no kernel. Exit 0 when every unit is sealed.
"""

import pathlib
import subprocess
import sys

# Folder and name of the source: what it exports.
UNITS = {"kernels/avx2": "kAvx2Unit", "kernels/avx_vnni": "kAvxVnniUnit",
         "kernels/avx512": "kAvx512Unit", "kernels/avx512_vnni": "kAvx512VnniUnit",
         "kernels/avx512_bf16": "kAvx512Bf16Unit", "kernels/amx": "kAmxUnit",
         "probe/avx2": "kAvx2Probes", "probe/avx512": "kAvx512Probes", "probe/amx": "kAmxProbes"}
# Plain C functions that a compiler may call on its own account.
ALLOWED_IMPORTS = {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}
SANITIZER_PREFIXES = ("__asan_", "__ubsan_", "__tsan_", "__sanitizer_", "__sancov_", "__gcov_")


def symbols(path):
    listing = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        kind, name = line.split()[-2:]
        yield kind, name


def unit_of(path):
    return f"{path.parent.name}/{path.name.removesuffix('.cpp.o')}"


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
    objects = [path for path in pathlib.Path(sys.argv[1]).rglob("*.cpp.o") if unit_of(path) in UNITS]
    if not objects:
        print("sealed units: no objects built yet")
        return 0
    found = [text for path in objects for text in problems(path, UNITS[unit_of(path)])]
    for text in found:
        print(text)
    print(f"sealed units: {len(objects)} objects, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
