"""The bands in which the behaviour of people stays: `python tests/behaviour/bands.py` measures them again and writes bands.toml.

A value is the mean over three runs of the quick protocol, with other people each (SEEDS); the tests run the first. A
band is value +- 3 standard deviations of the difference between such a mean and one run, sqrt(1 + 1/3) errors, because
a change of code or of processor that changes no behaviour draws new people. The error is the sampling error of a run
(`Statistic` says how) or the spread of the three runs, if that is larger; nothing about recordings depends on chance.
No band is narrower than its unit can resolve (RESOLUTION), and only angles are below 0.
"""

import json
import math
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dropsim.research.evaluation.behaviour import BehaviourProtocol
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.report import Statistic

FILE = Path(__file__).with_name("bands.toml")
SEEDS = (0, 1000, 2000)
RESOLUTION = {
    "share": 0.0,  # Wilson's interval is never empty
    "s": 1 / 30,  # a frame
    "m": 0.02,  # half a shoe's width of sway
    "m/s": 0.02,
    "rad/s": 0.1,
    "degrees": 1.0,
    "ratio": 0.01,  # momentum is conserved to 1 %
    "1/min": 1.0,
    "ways": 1.0,
    "people": 0.0,
}
HEAD = """# How people move now, and the band in which each number has to stay; `python tests/behaviour/bands.py` writes this file again.
# Shares are from 0 to 1. The target is what is to be reached; the law or recorded fact says what people do.
# bands.py says how wide bands are.

"""


def measure(folder: Path, seed: int = SEEDS[0]) -> dict[str, Statistic]:
    """Return the statistics of the quick protocol by name, simulated on two cores."""
    report = BehaviourProtocol.of(quick=True, seed=seed).evaluate(Body.of(None), folder, workers=2)
    return {one["name"]: Statistic(**one) for one in report.numbers["statistics"]}


def combined(runs: Sequence[Statistic]) -> Statistic:
    """Return the mean of a statistic over runs, with the error of one of them."""
    values, errors = [one.value for one in runs], [one.error for one in runs]
    return replace(runs[0], value=float(np.mean(values)), error=float(max(np.mean(errors), np.std(values, ddof=1))))


def band(one: Statistic) -> tuple[float, float]:
    """Return the lowest and the highest value that may come out of another run."""
    chance = 0.0 if "recordings" in one.name else 3 * (1 + 1 / len(SEEDS)) ** 0.5 * one.error
    half = max(chance, RESOLUTION[one.unit])
    lowest, highest = {"share": (0.0, 1.0), "degrees": (-180.0, 180.0)}.get(one.unit, (0.0, math.inf))
    return max(one.value - half, lowest), min(one.value + half, highest)


def line(one: Statistic) -> str:
    """Lay a row out as TOML."""
    numbers = ", ".join(f"{bound:.4g}" for bound in band(one))
    texts = {"unit": one.unit, "target": one.target, "law": one.law}
    rest = ", ".join(f"{key} = {json.dumps(text)}" for key, text in texts.items())
    return (
        f"{json.dumps(one.name)} = {{ value = {one.value:.4g}, band = [{numbers}], people = {one.people}, {rest} }}\n"
    )


def read() -> dict[str, dict]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        runs = [measure(Path(scratch), seed) for seed in SEEDS]
    lines = [line(combined([run[name] for run in runs])) for name in runs[0]]
    FILE.write_text(HEAD + "".join(lines), encoding="utf-8")
