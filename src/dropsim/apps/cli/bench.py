"""`dropsim bench`: how fast the simulator is on this machine."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bench:
    """Time the simulator for one person and for batches, beside the prior's matrix multiplications at the machine's measured peak.

    Warm, the median of many steps; times in milliseconds, by the clock and of the processor. The ratio is the step's processor time over
    the floor, the prior's matrix multiplications alone at the peak. Example: dropsim bench --quick
    """

    json: Path | None = None
    """File to write the numbers to."""
    quick: bool = False
    """Measure one person and 256 with 64 samples, for a moment each."""
    seconds: float = 2.0
    """How long each size is measured [s]."""

    def run(self) -> None:
        """Measure, print the table and write the file."""
        from json import dumps

        from dropsim.apps.cli.progress import bar
        from dropsim.files.atomic import atomic_path
        from dropsim.research.evaluation.bench import MOST_CANDIDATES, PEOPLE, SAMPLES, bench

        if not self.seconds > 0:
            raise ValueError(f"--seconds has to be above zero, and is {self.seconds}")
        if self.json is not None and not self.json.parent.is_dir():
            raise ValueError(f"{self.json.parent}: there is no such folder: make it first")
        people, samples, seconds = ((1, 256), (64,), min(self.seconds, 0.5)) if self.quick else (PEOPLE, SAMPLES, self.seconds)
        with bar("sizes") as advance:
            found = bench(people=people, samples=samples, seconds=seconds, watch=advance)
        print(found.table())
        print(f"sgemm peak {found.sgemm:.1f} GFLOP/s; floor = the prior's matrix multiplications at that peak")
        if not self.quick:
            print(f"left out: more than {MOST_CANDIDATES} candidates in a step (people times K)")
        print(f"peak memory of the process {found.peak_memory / 1e6:.0f} MB")
        if found.mujoco is not None:
            print(f"MuJoCo's humanoid at 2 ms, physics alone: {found.mujoco:.0f} simulated seconds a second")
        if self.json is not None:
            with atomic_path(self.json) as path:
                path.write_text(dumps(found.to_json(), indent=2) + "\n")
            print(f"wrote {self.json}")
