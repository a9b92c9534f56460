"""Loose boxes and balls obey mechanics."""

import math

import numpy as np
import pytest

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.rotations import exp
from dropsim.physics.bodies import EASE, SHALLOW, Crowd, advance, body_rows, make_way
from dropsim.physics.contact import Plane, Shape, solids
from dropsim.physics.shapes import BALL, BOX, CENTRE, FRICTION, SPIN, TURN, VELOCITY

H, G = 1 / 30, 9.81


class Pile:
    """Some bodies in one world, and somebody far away unless given."""

    def __init__(self, *colliders):
        self.rows, self.colliders = [], colliders or (Plane.ground(),)
        self.people, self.pace = np.full((1, 1, NUM_JOINTS, 3), 500.0), np.zeros((1, 1, NUM_JOINTS, 3))
        self.radii, self.response = np.full(NUM_JOINTS, 0.05), np.eye(NUM_JOINTS) / 3.0  # joints of 3 kg

    def box(
        self, half, mass, at, *, turn=(0.0, 0.0, 0.0), v=(0.0, 0.0, 0.0), w=(0.0, 0.0, 0.0), friction=0.5, bounce=0.0
    ):
        self.rows.append((BOX, half, mass, friction, bounce, at, exp(np.array(turn)), v, w))
        return self

    def ball(self, radius, mass, at, *, v=(0.0, 0.0, 0.0), friction=0.5, bounce=0.0):
        self.rows.append((BALL, (radius,) * 3, mass, friction, bounce, at, np.eye(3), v, (0.0, 0.0, 0.0)))
        return self

    def ready(self):
        kind, half, self.mass, friction, bounce, x, R, v, w = (
            np.array(column, dtype=float) for column in zip(*self.rows, strict=True)
        )
        rows = body_rows(kind.astype(np.int64), half, self.mass, friction, bounce)
        rows[:, CENTRE:FRICTION] = np.concatenate((x, R.reshape(-1, 9), v, w), -1)
        self.half, self.inertia = half, 1 / rows[:, EASE : EASE + 3]
        self.bodies = rows[None]
        # Views of the rows, which change with them.
        self.x, R, self.v, self.w = np.split(self.bodies, (CENTRE, TURN, VELOCITY, SPIN, FRICTION), -1)[1:5]
        self.R = R.reshape(1, -1, 3, 3)
        return self

    @property
    def crowd(self):
        return Crowd(self.people.reshape(1, -1, 3), self.pace.reshape(1, -1, 3), self.radii, self.response)

    def run(self, seconds, watch=None):
        if not hasattr(self, "bodies"):
            self.ready()
        around, forces = solids(tuple(self.colliders), (1, 1)), np.zeros(self.people.shape)
        for _ in range(round(seconds / H)):
            advance(self.bodies, self.crowd, around, H, forces[0])
            if watch:
                watch(self)
        self.forces = forces
        return self


def slope(degrees, friction=math.nan):
    angle, zero = math.radians(degrees), np.zeros(3)
    return Plane(np.array([math.sin(angle), 0.0, math.cos(angle)]), np.zeros(()), zero, zero, zero, np.array(friction))


def on_slope(degrees, half):
    return (half * math.sin(math.radians(degrees)), 0.0, half * math.cos(math.radians(degrees)))


def test_a_body_in_the_air_falls_freely():
    # z = z0 - g t^2 / 2, and what spins goes on spinning.
    pile = Pile().box((0.2, 0.2, 0.2), 3.0, (0.0, 0.0, 50.0), v=(1.0, 0.0, 0.0), w=(0.0, 0.0, 2.0)).run(1.0)
    # A velocity that is advanced first is half a substep ahead: g t / 480.
    np.testing.assert_allclose(pile.x[0, 0], [1.0, 0.0, 50 - G / 2], atol=G / 480 + 1e-9)
    np.testing.assert_allclose(pile.R[0, 0], exp(np.array([0.0, 0.0, 2.0])), atol=5e-3)


@pytest.mark.parametrize("kind", ["plane", "box"])
@pytest.mark.parametrize(
    ("degrees", "friction", "ground"),
    [(20, 0.2, math.nan), (30, 0.3, math.nan), (15, 0.0, math.nan), (20, 0.9, 0.05)],
)
def test_a_box_slides_down_a_slope_as_the_smaller_friction_says(kind, degrees, friction, ground):
    # s = g (sin a - mu cos a) t^2 / 2, on a plane and on the face of a tilted box alike.
    angle = math.radians(degrees)
    pile = Pile(slope(degrees, ground) if kind == "plane" else tilted_box(angle, ground))
    pile.box((0.3, 0.3, 0.1), 5.0, on_slope(degrees, 0.1), turn=(0.0, angle, 0.0), friction=friction).ready()
    start = pile.x[0, 0].copy()
    pile.run(1.0)
    expected = G * (math.sin(angle) - np.fmin(friction, ground) * math.cos(angle)) / 2
    assert np.linalg.norm(pile.x[0, 0] - start) == pytest.approx(expected, rel=0.02)


def tilted_box(angle, friction=math.nan):
    turn = exp(np.array([0.0, angle, 0.0]))
    return Shape(BOX, (20.0, 20.0, 1.0), turn @ np.array([0.0, 0.0, -1.0]), turn, friction=friction)


@pytest.mark.parametrize("kind", ["plane", "box"])
def test_a_box_rests_on_a_slope_below_the_angle_of_friction(kind):
    # tan 20 degrees = 0.36 < 0.5.
    angle = math.radians(20)
    ground = slope(20) if kind == "plane" else tilted_box(angle)
    pile = Pile(ground).box((0.3, 0.3, 0.1), 5.0, on_slope(20, 0.1), turn=(0.0, angle, 0.0)).run(0.5)
    start = pile.x.copy()
    pile.run(4.0)
    assert np.abs(pile.x - start).max() < 1e-3


STACKS = {
    "turned": [((0.2, 0.2, 0.15), 4.0, (0.01 * k, -0.01 * k, 0.15 + 0.3 * k), 0.2 * k) for k in range(3)],
    "crossed planks": [((0.5, 0.05, 0.05), 2.0, (0.0, 0.0, 0.05 + 0.1 * k), math.pi / 2 * (k % 2)) for k in range(5)],
    "large on small": [((0.1, 0.1, 0.1), 1.0, (0.0, 0.0, 0.1), 0.0), ((0.4, 0.4, 0.1), 3.0, (0.0, 0.0, 0.3), 0.3)],
    "heavy on light": [((0.2, 0.2, 0.2), 40.0 if k % 2 else 1.0, (0.0, 0.0, 0.2 + 0.4 * k), 0.0) for k in range(4)],
}
"""Half sizes [m], mass [kg], place [m] and turn [rad] of boxes."""


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_rests(stack):
    pile = Pile()
    for half, mass, at, turn in STACKS[stack]:
        pile.box(half, mass, at, turn=(0.0, 0.0, turn))
    start = pile.ready().x.copy()
    pile.run(4.0)
    assert np.abs(pile.x - start).max() < 3e-3
    assert np.abs(pile.v).max() < 1e-3


def energy(pile):
    spin = np.einsum("nij,ni->nj", pile.R[0], pile.w[0])
    moving = pile.mass * (pile.v[0] ** 2).sum(-1) + (pile.inertia * spin**2).sum(-1)
    return (0.5 * moving + G * pile.mass * pile.x[0, :, 2]).sum()


def test_a_pile_that_is_dropped_gains_no_energy_and_comes_to_rest(rng):
    pile = Pile()
    for k in range(8):
        at, half = (*rng.uniform(-0.3, 0.3, 2), 0.5 + 0.5 * k), tuple(rng.uniform(0.06, 0.25, 3))
        pile.box(half, rng.uniform(0.5, 8.0), at, turn=rng.standard_normal(3), w=rng.standard_normal(3), bounce=0.3)
    energies, depths = [energy(pile.ready())], []

    def watch(p):
        energies.append(energy(p))
        depths.append((p.x[0, :, 2] - (np.abs(p.R[0, :, 2]) * p.half).sum(-1)).min())

    pile.run(6.0, watch)
    assert np.diff(energies).max() < 1e-3 * np.ptp(energies)
    assert min(depths) > -0.01
    assert np.abs(pile.v).max() < 0.01


def test_a_tall_box_that_is_pushed_far_enough_falls_over_and_one_that_is_not_comes_back():
    # It tips once its centre is beyond its edge: atan(0.15 / 0.6) = 14 degrees.
    for degrees, falls in ((9.0, False), (19.0, True)):
        angle = math.radians(degrees)
        corner = exp(np.array([0.0, angle, 0.0])) @ np.array([0.15, 0.0, -0.6])
        pile = Pile().box((0.15, 0.15, 0.6), 10.0, tuple(-corner), turn=(0.0, angle, 0.0), friction=0.9).run(6.0)
        assert pile.x[0, 0, 2] == pytest.approx(0.15 if falls else 0.6, abs=5e-3)
        assert np.abs(pile.v).max() < 0.05


@pytest.mark.parametrize("bounce", [0.0, 0.5, 0.9])
def test_restitution(bounce):
    # Dropped by d, it rises to e^2 d; a substep at 3 m/s is 6 mm.
    heights = []
    pile = Pile().ball(0.1, 1.0, (0.0, 0.0, 0.6), bounce=bounce)
    pile.run(1.2, watch=lambda p: heights.append(p.x[0, 0, 2] - 0.1))
    lowest = int(np.argmax(np.diff(heights) >= 0))  # where it turns for the first time
    assert max(heights[lowest:]) == pytest.approx(0.5 * bounce**2, abs=0.025)


def test_momentum_stays_in_collisions():
    # In free fall together: whatever they do to each other, sum m v changes by gravity alone, and so does sum (x cross
    # m v + I w).
    pile = Pile().box((0.3, 0.2, 0.1), 4.0, (0.0, 0.0, 100.0), v=(2.0, 0.1, 0.0), w=(1.0, 0.5, 0.2))
    pile.box((0.2, 0.2, 0.2), 2.0, (0.9, 0.05, 100.1), v=(-2.0, 0.0, 0.0)).ball(
        0.15, 1.0, (0.0, 0.6, 100.0), v=(0.0, -3.0, 0.0)
    ).ready()

    def momenta():
        p = pile.mass[:, None] * (pile.v[0] + np.array([0.0, 0.0, G * time]))
        inertia = np.einsum("nij,nj,nkj->nik", pile.R[0], pile.inertia, pile.R[0])
        centre = (pile.mass[:, None] * pile.x[0]).sum(0) / pile.mass.sum()
        return p.sum(0), (np.cross(pile.x[0] - centre, p) + np.einsum("nij,nj->ni", inertia, pile.w[0])).sum(0)

    time = 0.0
    before = momenta()
    met = []
    pile.run(0.6, watch=lambda p: met.append(np.abs(p.v[0, :, 1]).max()))
    time = 0.6
    after = momenta()
    assert np.ptp(met) > 0.3  # they met
    np.testing.assert_allclose(after[0], before[0], atol=1e-9)
    # Turning boxes keep their angular velocity rather than their momentum, so that nothing blows up.
    np.testing.assert_allclose(after[1], before[1], atol=0.15)


@pytest.mark.parametrize("kind", ["ball", "box"])
def test_nothing_gets_through_a_wall_at_20_metres_per_second(kind, rng):
    wall = Shape(BOX, (3.0, 0.02, 3.0), np.array([0.0, 2.0, 0.0]), np.eye(3))
    pile = Pile(Plane.ground(), wall)
    for k in range(8):
        at, v = (0.7 * k - 2.5, rng.uniform(-1, 0.5), 1.0), (0.0, 20.0, 0.0)
        pile.ball(0.06, 0.5, at, v=v) if kind == "ball" else pile.box(
            (0.06, 0.08, 0.05), 0.5, at, turn=rng.standard_normal(3), v=v
        )
    pile.run(1.0)
    assert (pile.x[0, :, 1] < 2.0).all()
    assert (pile.x[0, :, 2] > 0.03).all()


def test_a_ball_rolls_without_slipping_in_the_end():
    # A sliding ball of inertia 2/5 m r^2 ends at 5/7 of its speed, rolling: v = w r.
    pile = Pile().ball(0.1, 1.0, (0.0, 0.0, 0.1), v=(2.0, 0.0, 0.0)).run(1.5)
    assert pile.v[0, 0, 0] == pytest.approx(2.0 * 5 / 7, rel=0.02)
    assert pile.w[0, 0, 1] == pytest.approx(pile.v[0, 0, 0] / 0.1, rel=0.02)


def test_somebody_gets_the_opposite_of_what_they_give():
    # A foot of 3 kg at 4 m/s kicks a ball of 0.4 kg: the ball gains what the foot loses, and leaves at (1 + e) m v / (m
    # + M).
    pile = Pile(Plane(np.array([0.0, 0.0, 1.0]), np.array(-100.0), *np.zeros((3, 3)))).ball(
        0.11, 0.4, (0.0, 0.3, 0.0), bounce=0.6, friction=0.0
    )
    pile.people[0, 0, 10], pile.pace[0, 0, 10] = [0.0, 0.1, 0.0], [0.0, 4.0, 0.0]
    given = np.zeros(3)
    around, forces = solids(tuple(pile.ready().colliders), (1, 1)), np.zeros(pile.people.shape)
    for _ in range(3):
        advance(pile.bodies, pile.crowd, around, H, forces[0])
        given += H * forces[0, 0, 10]
        pile.pace[0, 0, 10] += H * forces[0, 0, 10] / 3.0
        pile.people += H * pile.pace
    assert pile.v[0, 0, 1] == pytest.approx(1.6 * 3 * 4 / 3.4, rel=0.03)
    np.testing.assert_allclose(given[:2], -0.4 * pile.v[0, 0, :2], atol=1e-9)


WALL = Shape(BOX, (2.0, 0.1, 2.0), np.array([0.0, 0.3, 2.0]), np.eye(3))
MAKING_WAY = [
    # A foot of 5 cm, 4 cm deep in the side: it is moved away until the foot is as deep as is left alone.
    ("box", 0.2, (), (0.0, -0.21, 0.2), (0.0, 0.04 - SHALLOW, 0.2), False),
    ("ball", 0.2, (), (0.0, -0.21, 0.2), (0.0, 0.04 - SHALLOW, 0.2), False),
    # Not deep enough: it stays.
    ("box", 0.2, (), (0.0, -0.245, 0.2), (0.0, 0.0, 0.2), False),
    # Neither into a wall nor into the ground.
    ("box", 0.2, (WALL,), (0.0, -0.21, 0.2), (0.0, 0.0, 0.2), True),
    ("box", 0.2, (WALL,), (0.0, 0.0, 0.41), (0.0, 0.0, 0.2), True),
    # The foot is 6 cm deep in the top: of the 5 cm that are too many, the 2 cm above the ground are free.
    ("box", 0.22, (), (0.0, 0.0, 0.41), (0.0, 0.0, 0.2), True),
    ("ball", 0.22, (), (0.0, 0.0, 0.41), (0.0, 0.0, 0.2), True),
]


@pytest.mark.parametrize(("kind", "height", "walls", "foot", "place", "stuck"), MAKING_WAY)
def test_a_body_makes_way_for_somebody_who_went_into_it(kind, height, walls, foot, place, stuck):
    pile, at = Pile(Plane.ground(), *walls), (0.0, 0.0, height)
    pile = (pile.ball(0.2, 5.0, at) if kind == "ball" else pile.box((0.2, 0.2, 0.2), 5.0, at)).ready()
    pile.people[0, 0, 10] = foot
    flags, around = np.zeros((1, 1), dtype=np.bool_), solids(tuple(pile.colliders), (1, 1))
    assert make_way(pile.bodies, pile.crowd, around, flags) is stuck
    assert flags.tolist() == [[stuck]]
    np.testing.assert_allclose(pile.x[0, 0], place, atol=1e-12)


def test_a_light_body_under_somebody_heavy_stays_on_the_ground():
    # An arm that the body behind it makes 40 kg heavy hits a box of 1 kg at 5 m/s: it stops, and the box stays where it
    # is. What is left is the depth that is left alone, and what the last iterations would change.
    pile = Pile().box((0.13, 0.17, 0.13), 1.0, (0.0, 0.0, 0.13)).ready()
    pile.response = np.eye(NUM_JOINTS) / 40.0
    pile.people[0, 0, 19], pile.pace[0, 0, 19] = (0.07, -0.12, 0.33), (-2.0, 4.0, -5.0)
    pile.run(H)
    assert pile.forces[0, 0, 19, 2] > 1000  # it hit
    lowest = pile.x[0, 0, 2] - np.abs(pile.R[0, 0, 2]) @ pile.half[0]
    assert lowest > -1e-3
    assert np.abs(pile.w).max() < 0.2
    assert -5.0 + H / 40.0 * pile.forces[0, 0, 19, 2] == pytest.approx(0.0, abs=0.1)
