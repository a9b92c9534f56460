"""Who is pushed, and what is switched off, so that the paper's claims can be judged."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dropsim.priors.named import open_prior
from dropsim.research.evaluation.chunks import Arrays, Chunk
from dropsim.research.evaluation.paper.runs import EnergyChunk, FollowChunk, merged
from dropsim.research.evaluation.trials import Body, Trial, batched, check_seed, toward

CATEGORIES = ("walk", "run", "turn", "stand", "jump", "crouch", "dance", "sport")
"""Starts of the random motions, all that begin on their feet."""
MILD, HARD = (150.0, 350.0), (300.0, 700.0)
"""Ranges of the pushes [N]: most people bear the first on their feet, the second fells most. The paper gives no number,
so that every claim is judged over both."""
PUSHED = (63, 78)
"""Frames of the push: the paper's."""
FOLLOWERS = 4
"""People of a batch."""
FOLLOWS = {"follow": 1.2, "follow-run": 2.5, "lead-by-hand": 1.2, "lead-by-hand-run": 2.5}
"""Scenarios and the speeds that they ask for [m/s]."""


@dataclass(frozen=True)
class PaperOptions:
    """How much is measured."""

    motions: int = 250
    num_samples: int = 64
    """K: candidates of the prior a frame."""
    seed: int = 0
    num_frames: int = 240
    """Length of a pushed motion [frames]."""
    longer_frames: int = 480
    """Length of those that tell whether energies come back [frames]: people who fell need some seconds to get up."""
    walks: int = 8
    """Walks, of which the first that stays on its feet is drawn."""
    runs: int = 25
    """Pushed runs whose root wrench is looked at."""
    followers: int = 8
    """People of each scenario that follows a path."""
    follow_seconds: float = 16.0
    """How long they follow it [s]."""
    rollouts: int = 64
    """Rollouts that they look ahead over."""
    remedies: int = 50
    """Motions on which the forms of the method that might explain a failed claim are tried."""
    longer: int = 100
    """Motions of that length."""
    speed_frames: int = 150
    """Frames that are timed."""
    recordings: Path | None = None
    """Folder of recordings that the root wrench is compared with."""
    prior: str = "field"
    """As `open_prior` takes it."""
    newtons: tuple[float, float] = HARD
    """Range of all pushes [N]; the walk that is drawn gets the middle of it."""

    def __post_init__(self) -> None:
        if not 0 < self.newtons[0] <= self.newtons[1]:
            raise ValueError(
                f"pushes range from a force of at least 1 N to a larger one, not from {self.newtons[0]:g} to {self.newtons[1]:g} N"
            )
        if min(self.motions, self.walks, self.runs, self.followers) < 1:
            raise ValueError(f"cannot judge by {self.motions} motions: give at least 1")
        if not 1 <= self.num_samples <= 4096:
            raise ValueError(f"the number of samples must be from 1 to 4096, not {self.num_samples}")
        check_seed(self.seed)
        if self.num_frames < 160 or self.follow_seconds < 4:
            raise ValueError("motions need at least 160 frames, and people who follow at least 4 s")

    @classmethod
    def quick(cls, **others: object) -> "PaperOptions":
        """Return a small version that shows the direction of the claims within seconds."""
        small = {
            "motions": 5,
            "num_samples": 8,
            "num_frames": 160,
            "walks": 2,
            "runs": 2,
            "followers": 1,
            "follow_seconds": 4.0,
        }
        return cls(**{**small, "rollouts": 16, "remedies": 0, "longer_frames": 160, "speed_frames": 30, **others})  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Plan:
    """The chunks of every part."""

    options: PaperOptions
    parts: Mapping[str, Sequence[Chunk]] = field(default_factory=dict)

    @classmethod
    def of(cls, options: PaperOptions) -> "Plan":
        """Lay out all that is simulated."""
        body = Body.of(options.num_samples, options.prior)
        categories = startable(options.prior)
        trials = random_trials(options.motions, options.seed, options.newtons, categories)
        some = trials[: options.remedies]
        bare = body.changed(contact=False, range_of_motion=False)
        literal = body.changed(react=False)
        bodies = {
            "full": (body, trials),
            "calm": (body, [replace(trial, force=(0.0, 0.0, 0.0)) for trial in trials]),
            "ablated": (bare, trials),
            "mean": (body.changed(num_samples=1, start_at_mode=True), trials),
            "literal": (literal, some),
            "literal-ablated": (literal.changed(contact=False, range_of_motion=False), some),
            "uncorrected": (body.changed(correct=False), some),
            "uncorrected-ablated": (bare.changed(correct=False), some),
            "mode": (body.changed(start_at_mode=True), some),
        }
        parts: dict[str, Sequence[Chunk]] = {
            name: [EnergyChunk(name, one, part, options.num_frames) for part in batched(of)]
            for name, (one, of) in bodies.items()
        }
        parts["longer"] = [
            EnergyChunk("longer", body, part, options.longer_frames) for part in batched(trials[: options.longer])
        ]
        force, (first, end) = toward(90.0, sum(options.newtons) / 2), PUSHED
        walks = tuple(
            Trial("walk", options.seed + i, force, "pelvis", first, end - first) for i in range(options.walks)
        )
        parts["walk"] = [EnergyChunk("walk", body, walks, options.num_frames, keep_motion=True)]
        runners = [
            replace(trial, start="run") for trial in random_trials(options.runs, options.seed + 1, options.newtons)
        ]
        parts["run"] = [EnergyChunk("run", body, part, options.num_frames) for part in batched(runners)]
        seeds = range(options.seed, options.seed + options.followers)
        how = (body, options.follow_seconds, options.rollouts)
        for name in FOLLOWS:
            parts[name] = [
                FollowChunk(name, tuple(seeds[i : i + FOLLOWERS]), *how) for i in range(0, len(seeds), FOLLOWERS)
            ]
        return cls(options, parts)

    @property
    def chunks(self) -> list[Chunk]:
        """All chunks, the longest first, so that no worker is left with one at the end."""
        return sorted(
            (chunk for part in self.parts.values() for chunk in part), key=lambda chunk: isinstance(chunk, EnergyChunk)
        )

    def by_part(self, results: Sequence[Arrays]) -> dict[str, Arrays]:
        """Return what was found, by part; a part without any chunk is left out."""
        found = dict(zip(map(id, self.chunks), results, strict=True))
        return {name: merged([found[id(chunk)] for chunk in part]) for name, part in self.parts.items() if part}


def startable(prior: str) -> tuple[str, ...]:
    """Return the categories that a prior can start in."""
    opened, found = open_prior(prior), []
    for category in CATEGORIES:
        with contextlib.suppress(ValueError):
            opened.start(category)
            found.append(category)
    return tuple(found)


def random_trials(
    count: int, seed: int, newtons: tuple[float, float] = HARD, categories: Sequence[str] = CATEGORIES
) -> list[Trial]:
    """Draw motions, and for each a push on the torso in any horizontal direction; the first of more are those of fewer."""
    rng = np.random.default_rng(seed)
    first, end = PUSHED
    trials = []
    for i in range(count):
        kind, angle, size = rng.random(3).tolist()
        force = toward(360 * angle, newtons[0] + (newtons[1] - newtons[0]) * size)
        trials.append(
            Trial(categories[int(kind * len(categories))], seed * 1000 + i, force, "torso", first, end - first)
        )
    return trials
