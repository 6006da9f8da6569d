"""Makes points.csv: what every example trains on.

1600 points of a function that no straight line fits, with a little noise. The same file
comes out every time: `python3 make.py && git diff --exit-code points.csv`.
"""

import math
import random
from pathlib import Path

ROWS = 1600
FEATURES = 6


def main() -> None:
    """Write points.csv beside this file."""
    draw = random.Random(20)
    lines = [",".join([*(f"x{i}" for i in range(FEATURES)), "y"])]
    for _ in range(ROWS):
        x = [draw.uniform(-1, 1) for _ in range(FEATURES)]
        y = math.sin(3 * x[0]) + x[1] * x[2] + x[3] ** 2 - 0.5 * x[4] + draw.gauss(0, 0.05)
        lines.append(",".join(f"{value:.4f}" for value in [*x, y]))
    (Path(__file__).parent / "points.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
