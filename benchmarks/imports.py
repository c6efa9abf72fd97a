"""What importing costs against importing torch: the smallest of several fresh processes, taken in turns.

Goal: `import widemargin`, and everything that measuring needs, under 1.5 times `import torch`.
"""

from __future__ import annotations

import subprocess
import sys

STATEMENTS = (
    "import torch",
    "import widemargin",
    "import widemargin as wm; wm.places; wm.margins; wm.models",
    "import widemargin as wm; [getattr(wm, name) for name in wm.__all__]",
)
ROUNDS = 5
PROGRAM = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def main() -> None:
    best = dict.fromkeys(STATEMENTS, float("inf"))
    for _ in range(ROUNDS):
        for statement in STATEMENTS:
            best[statement] = min(best[statement], seconds(statement))
    print(f"imports, the smallest of {ROUNDS} fresh processes")
    for statement, took in best.items():
        print(f"{took:8.3f} s  {took / best['import torch']:5.2f} x torch  {statement}")


def seconds(statement: str) -> float:
    command = [sys.executable, "-c", PROGRAM.format(statement)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
