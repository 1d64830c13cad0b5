"""Times `import distlab` beside `import numpy`, each in a fresh interpreter.

Aim: at most 0.2 s, and no torch.
"""

import statistics
import subprocess
import sys

REPEATS = 9


def import_s(module: str) -> float:
    """Returns the seconds that one import takes inside a new interpreter."""
    code = (
        "import time; begin = time.perf_counter(); "
        f"import {module}; print(time.perf_counter() - begin)"
    )
    return float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    )


def main() -> None:
    pairs = [(import_s("distlab"), import_s("numpy")) for _ in range(REPEATS)]
    ours, numpy = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"import distlab {ours * 1e3:.0f} ms, import numpy {numpy * 1e3:.0f} ms (medians)")


if __name__ == "__main__":
    main()
