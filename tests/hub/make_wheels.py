"""make_wheels.py FOLDER: two tiny packages, stand-part1 and stand-part2, each with half of a model.

Importing or building either would create the file named by STAND_IN_CANARY.
"""

import os
import sys
import zipfile

folder = sys.argv[1]
canary = "import os; open(os.environ['STAND_IN_CANARY'], 'w')\n"
for part_id, content in ((1, b"first half, "), (2, b"second half")):
    name = f"stand_part{part_id}"
    info = f"{name}-1.0.0.dist-info"
    with zipfile.ZipFile(os.path.join(folder, f"{name}-1.0.0-py3-none-any.whl"), "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", canary)
        wheel.writestr(f"{name}/data/part0{part_id - 1}.bin", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: stand-part{part_id}\nVersion: 1.0.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
