"""What a step of a margin loss costs: `widemargin bench`, from a checkout, with its options.

python benchmarks/step.py                    # on the CPU, tiny networks, about a minute
python benchmarks/step.py --device cuda
"""

from __future__ import annotations

import sys

from widemargin.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "bench")
    main()
