"""`dropsim bench`: how fast the simulator is on this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dropsim.apps.cli.arguments import BodyFile, PriorOptions, optional


@dataclass(frozen=True, kw_only=True)
class Bench(PriorOptions):
    """Time worlds of one person and of many, the bare step and its parts, and a first run.

    Warm, the median of many steps; times in milliseconds, by the clock and of the processor. Example: dropsim bench
    --quick
    """

    json: Annotated[Path | None, optional("FILE.json", "only print them")] = None
    """File to write the numbers to."""
    body: BodyFile = None
    """SMPL's file of the body that HuMoR was trained on."""
    quick: bool = False
    """Measure one person and 256 with 8, 16 and 64 samples, for a moment each."""
    seconds: float = 2.0
    """Time for which each size is measured [s]."""
    first_run: bool = True
    """Also time the imports and the compilation of a first run, in a process with an empty kernel cache."""

    def run(self) -> None:
        """Measure, print the table and write the file."""
        from dropsim.apps.cli.progress import bar, tell_of_compiling
        from dropsim.files.atomic import refuse_read_only

        if not 0 < self.seconds <= 3600:
            raise ValueError(f"--seconds has to be above 0 and at most 3600, and is {self.seconds:g}")
        if self.json is not None:
            if not self.json.parent.is_dir():
                raise ValueError(f"{self.json.parent}: there is no such folder: make it first")
            refuse_read_only(self.json)
        tell_of_compiling()
        from dropsim.priors.named import prior_name
        from dropsim.research.evaluation import bench as measure

        sizes = {"people": (1, 256), "samples": (8, 16, 64)} if self.quick else {}
        seconds = min(self.seconds, 0.5) if self.quick else self.seconds
        how = {"seconds": seconds, "first_run": self.first_run}
        with bar("sizes") as advance:
            report = measure.bench(prior_name(self.prior or "field", self.body), **sizes, **how, watch=advance)
        print(report.text())
        numbers = report.numbers
        if not self.quick:
            print(f"left out: more than {measure.MOST_CANDIDATES} candidates in a step (people times K)")
        print(f"peak memory of the process {numbers['peak_memory'] / 1e6:.0f} MB")
        if self.first_run:
            compiles = f"its first step ever compiles in {numbers['compile_seconds']:.0f} s"
            print(f"a new process imports in {numbers['import_seconds']:.1f} s, and {compiles}")
        unit = "simulated seconds per processor second"
        for name, rate in (numbers["mujoco_seconds_per_second"] or {}).items():
            print(f"MuJoCo, Gymnasium's {name}, physics alone: {rate:.1f} {unit}")
        if rate := numbers["simulated_seconds_256"]:
            print(f"256 people with K = 64: {rate:.1f} {unit}")
        for path in report.write(None, self.json):
            print(f"wrote {path}")
