"""`dropsim scenarios`: what there is to run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenarios:
    """List the ready scenarios, for `dropsim run NAME`, with a sentence each."""

    def run(self) -> None:
        """Print a line for each."""
        from dropsim.scenarios import SCENARIOS

        width = max(map(len, SCENARIOS))
        for name, setup in SCENARIOS.items():
            print(f"{name:{width}}  {setup.description}")
