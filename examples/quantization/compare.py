"""What quantization costs: a model compiled by several recipes, one of them calibrated, in a table.

    python examples/quantization/compare.py examples/demo/model --text examples/demo/heldout.jsonl

Calibration measures activations on a text, and gives more bits to the matrices that need them.
`mlcc eval --compare` prints the table: bits a weight, size, speed and perplexity of each recipe.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

RECIPES = {
    "q8": ("--quant", "q8"),
    "q4": ("--quant", "q4", "--calibrate", "none"),
    "q4-calibrated": ("--quant", "q4", "--calibrate", "default"),
}


def mlcc(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "mlcc", *map(str, words)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="texts for perplexity")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = [Path(folder) / name for name in args.recipes.split(",")]
        for out in made:
            mlcc("compile", args.model, *RECIPES[out.name], "--cpu", "host", "-o", out)
        mlcc("eval", "--compare", *made, "--text", args.text)


if __name__ == "__main__":
    main()
