"""What happens to a person, and when: pushes by direction, place and time."""

import math

import pytest
import torch

from dropsim.collider import Plane
from dropsim.motion import Event
from dropsim.prior import State
from dropsim.rotations import heading
from dropsim.scene import BODY_PARTS, DIRECTIONS, Push, Scene, joints_of
from dropsim.skeleton import JOINTS, NUM_JOINTS, joint_index
from dropsim.synthetic import stepping_clip


def state(*batch: int) -> State:
    """Somebody, anywhere."""
    x = torch.zeros(*batch, NUM_JOINTS, 3).double()
    return State(x, x.clone(), torch.eye(3).double().expand(*batch, NUM_JOINTS, 3, 3), torch.zeros(*batch, 0).double())


def active_frames(push: Push, fps: float = 30.0, count: int = 200) -> list[int]:
    scene = Scene((push,), fps=fps)
    return [frame for frame in range(count) if scene(frame, state()).forces.any()]


# --- where to


@pytest.mark.parametrize(("direction", "joint", "other"), [("left", "left_hip", "right_hip"), ("front", "left_foot", "left_ankle")])
def test_directions_are_those_of_the_person(direction: str, joint: str, other: str):
    # The synthetic person faces +y as those of the bank do (its heading needs no turn), so its own left is where its left hip is.
    clip = stepping_clip(0.1)
    torch.testing.assert_close(heading(clip.q[0, 0]), torch.eye(3).double(), rtol=0, atol=1e-12)
    way = (clip.joints[0, joint_index(joint)] - clip.joints[0, joint_index(other)])[:2]
    assert Push.toward(direction, 100.0).force[0] * way[0] + Push.toward(direction, 100.0).force[1] * way[1] > 0.9 * 100 * way.norm()


@pytest.mark.parametrize(
    ("direction", "x", "y"),
    [("front", 0, 1), ("left", -1, 0), ("back", 0, -1), ("right", 1, 0), ("0", 0, 1), ("90", -1, 0), ("-90", 1, 0), ("450", -1, 0)],
)
def test_directions_in_the_world(direction: str, x: float, y: float):
    # Facing +y, left is -x; degrees run counterclockwise seen from above. A force of 250 N is rounded at 1e-14 of it.
    assert Push.toward(direction, 250.0).force == pytest.approx((250.0 * x, 250.0 * y, 0.0), abs=1e-9)


def test_degrees_in_between():
    # 45 degrees to the left of the front, like 30 degrees by hand.
    assert Push.toward("45", 1.0).force == pytest.approx((-math.sqrt(0.5), math.sqrt(0.5), 0.0))
    assert Push.toward("30", 2.0).force == pytest.approx((-1.0, math.sqrt(3), 0.0))


def test_a_push_toward_somewhere_takes_the_other_fields_too():
    push = Push.toward("back", 10.0, part="hand", start=1.5, duration=0.25)
    assert (push.part, push.start, push.duration) == ("hand", 1.5, 0.25)
    assert Push.toward("back", 0.0).force == pytest.approx((0.0, 0.0, 0.0))


# --- on what


@pytest.mark.parametrize("part", [*BODY_PARTS, *JOINTS])
def test_the_parts_of_a_body_share_the_force(part: str):
    forces = Push.toward("60", 300.0, part=part, start=0.0).forces_at(0, 30.0)
    assert float(forces.sum(0).norm()) == pytest.approx(300.0)
    touched = forces.any(-1).nonzero().squeeze(-1).tolist()
    assert touched == sorted(joints_of(part))
    torch.testing.assert_close(forces[touched], forces[touched][:1].expand(len(touched), 3), rtol=0, atol=0)


def test_every_part_is_made_of_joints():
    assert all(set(names) <= set(JOINTS) and len(set(names)) == len(names) for names in BODY_PARTS.values())
    assert joints_of("left_knee") == (joint_index("left_knee"),)


# --- when


@pytest.mark.parametrize("fps", [30.0, 29.97])
@pytest.mark.parametrize("duration", [0.5, 0.1, 1 / 30, 0.05])
def test_a_push_lasts_its_frames_wherever_it_starts(fps: float, duration: float):
    # On frames, between them, and a rounding error beside them: the momentum that it gives must not depend on it.
    starts = [(k + shift) / fps for k in (0, 7, 63) for shift in (0.0, 0.3, 0.7, 1e-12)] + [63 / fps - 1e-12, 0.1 + 0.2, 2.1]
    pushes = [Push("pelvis", (1.0, 0.0, 0.0), start, duration) for start in starts]
    counts = {sum(bool(push.forces_at(frame, fps).any()) for frame in range(90)) for push in pushes}
    assert counts == {round(duration * fps)}


def test_the_papers_push():
    # 15 frames at 30 Hz from frame 63 on: the first frames with and without it.
    assert active_frames(Push.toward("left", 100.0, start=2.1, duration=0.5)) == list(range(63, 78))


def test_the_shortest_push_is_one_frame():
    for start in (0.0, 0.01, 0.02):
        assert len(active_frames(Push("pelvis", (1.0, 0.0, 0.0), start, 0.001))) == 1


def test_a_start_between_frames_is_the_nearest_frame():
    assert active_frames(Push("pelvis", (1.0, 0.0, 0.0), 1.01, 0.1))[0] == 30
    assert active_frames(Push("pelvis", (1.0, 0.0, 0.0), 1.02, 0.1))[0] == 31


# --- what is refused


@pytest.mark.parametrize("direction", ["up", "", "lef", "nan", "inf", "-inf", "90deg"])
def test_unknown_directions(direction: str):
    with pytest.raises(ValueError, match=r"there is no direction .*: use front, left, back, right or degrees") as error:
        Push.toward(direction, 100.0)
    assert "\n" not in str(error.value)
    assert set(DIRECTIONS) == {"front", "left", "back", "right"}


@pytest.mark.parametrize("newtons", [-1.0, math.nan, math.inf])
def test_forces_that_are_none(newtons: float):
    with pytest.raises(ValueError, match="a push needs a force of 0 N or more"):
        Push.toward("left", newtons)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"force": (math.nan, 0.0, 0.0)}, "finite"),
        ({"force": (0.0, 0.0, math.inf)}, "finite"),
        ({"start": math.nan}, "finite"),
        ({"start": -0.1}, "starts at 0 s or later"),
        ({"duration": math.inf}, "finite"),
        ({"duration": 0.0}, "longer than 0 s"),
        ({"duration": -1.0}, "longer than 0 s"),
        ({"part": "tail"}, "there is no joint 'tail'"),
        ({"part": ""}, "there is no joint ''"),
    ],
)
def test_pushes_that_cannot_be(fields: dict, message: str):
    with pytest.raises(ValueError, match=message) as error:
        Push(**fields)
    assert "\n" not in str(error.value)


# --- the scene


def test_a_scene_sums_what_happens_at_once():
    first, second = Push.toward("left", 100.0, start=0.0, duration=1.0), Push("spine3", (0.0, 0.0, 50.0), 0.5, 1.0)
    scene = Scene((first, second))
    by_frame = [scene(frame, state()).forces for frame in (0, 20, 40, 60)]
    expected = [first.forces_at(0, 30.0), first.forces_at(0, 30.0) + second.forces_at(20, 30.0), second.forces_at(20, 30.0)]
    for forces, sum_of_pushes in zip(by_frame, [*expected, torch.zeros(NUM_JOINTS, 3).double()], strict=True):
        torch.testing.assert_close(forces, sum_of_pushes, rtol=0, atol=0)
    assert by_frame[1].sum(0).tolist() == pytest.approx([-100.0, 0.0, 50.0], abs=1e-9)


def test_a_scene_pushes_every_member_of_a_batch_alike():
    forces = Scene((Push.toward("front", 90.0, start=0.0),))(0, state(2, 3)).forces
    assert forces.shape == (2, 3, NUM_JOINTS, 3)
    torch.testing.assert_close(forces.sum(-2), torch.tensor([0.0, 90.0, 0.0]).double().expand(2, 3, 3), rtol=0, atol=1e-9)
    forces[0, 0] = 0.0  # each has its own
    assert forces[0, 1].any()


def test_a_scene_keeps_its_own_rate():
    # Half a second is 15 frames at 30 Hz and 60 at 120 Hz.
    push = Push.toward("front", 1.0, start=1.0, duration=0.5)
    assert active_frames(push, 30.0) == list(range(30, 45))
    assert active_frames(push, 120.0) == list(range(120, 180))


def test_what_a_scene_shows_to_others():
    pushes = (Push.toward("left", 100.0, part="hand", start=1.0, duration=0.25), Push(start=3.0))
    scene = Scene(pushes)
    assert scene.events == (Event("push hand", 1.0, 0.25), Event("push torso", 3.0, 0.5))
    external = scene(0, state())
    assert not external.forces.any()
    (ground,) = external.colliders
    assert isinstance(ground, Plane)
    assert Scene((), colliders=())(0, state()).colliders == ()
