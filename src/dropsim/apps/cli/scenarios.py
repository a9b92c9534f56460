"""`dropsim scenarios`: what there is to run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenarios:
    """List the ready scenarios, with a sentence each.

    Example: dropsim scenarios; then: dropsim run trip, or dropsim view trip
    """

    def run(self) -> None:
        """Print a line for each."""
        from dropsim.scene.scenarios import SCENARIOS

        width = max(map(len, SCENARIOS))
        for name, setup in SCENARIOS.items():
            print(f"{name:{width}}  {setup.description}")
