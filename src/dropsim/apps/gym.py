"""A Gymnasium environment: a person who reacts to the forces of an agent.

Importing this module registers `dropsim/KnockOver-v0` and `dropsim/KeepUpright-v0`;
gymnasium.make("dropsim.apps.gym:dropsim/KnockOver-v0") imports it too. It needs the extra `gym`; docs/synthesis.md
shows how to use it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import heading
from dropsim.body.skeleton import NUM_JOINTS
from dropsim.compute.random import Streams
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.step import Report, Simulator
from dropsim.research.synthesis.distribution import distribution
from dropsim.scene import BODY_PARTS, StepInputs, World, WorldState
from dropsim.scene.element import height_of, joints_of
from dropsim.scene.rollout import seen
from dropsim.scene.setup import MAX_SECONDS

FARTHEST = 100.0
"""Observations are cut off at this value [m, m/s]."""


@dataclass(frozen=True)
class Reward:
    """Rewards of the agent."""

    fallen: float = 0.0
    """Once, when the person has fallen."""
    upright: float = 0.0
    """Per second in which the person has not fallen."""
    effort: float = 0.0
    """Per impulse of the agent's forces [body weights times seconds]."""


KNOCK_OVER = Reward(fallen=1.0, effort=-1.0)
"""Make the person fall with the least impulse: 1 for the fall, minus the impulse in body weights times seconds."""
KEEP_UPRIGHT = Reward(fallen=-1.0, upright=1 / 6, effort=-0.2)
"""Hold up a person who is pushed by others: 1 for six seconds upright, -1 for a fall."""


class PushEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A person in a scene; the agent's action is a force on each of some body parts, a step is a frame of 1/30 s.

    An action has three numbers for each part, from -1 to 1 times the largest force, toward the person's right, front
    and up. An observation has, in the frame that faces along +y with the pelvis above the origin: the 22 joints [m] (66
    numbers), their velocities [m/s] (66), which joints touch something (22), the share of the episode that is over (1),
    and the last action (3 for each part). An episode ends when the person has fallen, and is cut off after its seconds.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as the base class has it
        "render_modes": ["rgb_array"],
        "render_fps": 30,
    }

    def __init__(
        self,
        *,
        scene: str = "calm",
        parts: Sequence[str] = ("torso",),
        max_force: float = 300.0,
        seconds: float = 6.0,
        num_samples: int | None = None,
        reward: Reward = KNOCK_OVER,
        render_mode: str | None = None,
    ) -> None:
        """Take people and events from a distribution of scenes (its name or file), drawn again at each reset."""
        if not (0 < seconds <= MAX_SECONDS and 0 < max_force < math.inf):
            wanted = f"an episode has up to {MAX_SECONDS:g} seconds and forces above 0 N"
            raise ValueError(f"{wanted}, not {seconds:g} and {max_force:g}")
        if not parts:
            raise ValueError(f"an agent needs a body part to push, such as {', '.join(BODY_PARTS)}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"there is no render mode {render_mode!r}: use rgb_array or None")
        self.render_mode = render_mode
        self._joints = [joints_of(part) for part in parts]
        self._scenes, self._reward, self._max_force = distribution(scene), reward, max_force
        self._simulator = Simulator.shipped(num_samples=num_samples)
        self._num_frames = max(1, round(seconds * self._simulator.prior.fps))
        self._body_weight = float(self._simulator.skeleton.masses.sum()) * GRAVITY
        size = 3 * NUM_JOINTS + 3 * NUM_JOINTS + NUM_JOINTS + 1 + 3 * len(parts)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (3 * len(parts),), np.float32)
        self.observation_space = gymnasium.spaces.Box(-FARTHEST, FARTHEST, (size,), np.float32)
        self._world: World | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a scene and put the person at its start."""
        super().reset(seed=seed)
        drawn = self._scenes.draw(int(self.np_random.integers(2**62)), 0)
        if len(drawn.setup.scene.people) != 1 or drawn.setup.clip is not None:
            wrong = "has several people or follows a recording: this environment has one person"
            raise ValueError(f"the scene {self._scenes.name!r} {wrong}")
        self._world = World(drawn.setup.scene, self._simulator)
        self._states, self._reports = [self._world.start(drawn.seed)], list[Report]()
        self._rng: Streams = self._world.streams(drawn.seed)
        self._action, self._impulse = np.zeros(self.action_space.shape or (), np.float32), 0.0
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Push for a frame."""
        world, now = self._running()
        numbers, wanted = np.asarray(action, np.float32), self.action_space.shape
        if numbers.shape != wanted or not np.isfinite(numbers).all():
            expected = "three finite numbers from -1 to 1 for each body part"
            raise ValueError(f"an action has {expected}: the shape {wanted}, not {numbers.shape}")
        self._action = np.clip(numbers, -1.0, 1.0)
        forces = self._forces(now)
        try:
            after, report = world.step(now, self._rng, also=[StepInputs(forces=forces)])
        except ValueError as error:  # so violent that there is no next frame
            return self._observation(), 0.0, True, False, {**self._info(), "diverged": str(error)}
        self._states.append(after)
        self._reports.append(report)
        h = 1 / world.fps
        effort = float(np.linalg.norm(forces, axis=-1).sum()) * h / self._body_weight
        self._impulse += effort
        fallen = self._fallen()
        reward = self._reward.effort * effort + (self._reward.fallen if fallen else self._reward.upright * h)
        return self._observation(), reward, fallen, len(self._reports) >= self._num_frames, self._info()

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a picture of the person, (height, width, 3); None without the render mode rgb_array."""
        from dropsim.render import Stage, draw_frame

        if self.render_mode is None:
            return None

        world, _ = self._running()
        last = seen(world, self._states[-2:], self._reports[-1:])
        return np.asarray(draw_frame(Stage(last.motions, ground=last.ground), len(last.motions[0]) - 1).convert("RGB"))

    def motion(self) -> Motion:
        """Return the episode so far, to be rendered or exported."""
        world, _ = self._running()
        return seen(world, self._states, self._reports).motions[0]

    def _running(self) -> tuple[World, WorldState]:
        if self._world is None:
            raise ValueError("the environment has not begun: call reset() first")
        return self._world, self._states[-1]

    def _forces(self, now: WorldState) -> Float[np.ndarray, "1 22 3"]:
        """Turn the action into forces on the joints, in the world [N]."""
        forces, turn = np.zeros(now.people.x.shape), heading(now.people.q[0, 0])
        for joints, one in zip(self._joints, self._action.astype(np.float64).reshape(-1, 3), strict=True):
            forces[0, list(joints)] += self._max_force * (one @ turn) / len(joints)
        return forces

    def _observation(self) -> np.ndarray:
        """See the person from its own heading."""
        _, now = self._running()
        x, v, turn = now.people.x[0], now.people.v[0], heading(now.people.q[0, 0])
        touching = self._reports[-1].touching[0] if self._reports else np.zeros(NUM_JOINTS)
        over = np.array([len(self._reports) / self._num_frames])
        parts = ((x - x[0] * [1.0, 1.0, 0.0]) @ turn.T, v @ turn.T, touching, over, self._action)
        return np.concatenate([np.reshape(part, -1) for part in parts]).clip(-FARTHEST, FARTHEST).astype(np.float32)

    def _fallen(self) -> bool:
        world, now = self._running()
        x = now.people.x.copy()
        x[..., 2] -= height_of(world.ground(now, now.frame / world.fps), x[..., 0, :2])[..., None]
        return bool(metrics.lying(x, self._simulator.skeleton))

    def _info(self) -> dict[str, Any]:
        seconds = len(self._reports) / self._simulator.prior.fps
        return {"fallen": self._fallen(), "impulse": self._impulse, "seconds": seconds}


for _name, _scene, _reward in (("KnockOver", "calm", KNOCK_OVER), ("KeepUpright", "pushes", KEEP_UPRIGHT)):
    gymnasium.register(f"dropsim/{_name}-v0", "dropsim.apps.gym:PushEnv", kwargs={"scene": _scene, "reward": _reward})
