"""The motion field: it plays what recorded people did next, on the body's own pose."""

from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.motion.contacts import label_contacts
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.bank import Bank, ClipInfo
from dropsim.priors.field_queries import FALL_TIME, MOMENT, ROW
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import CLIP_END, LANDS, MotionField
from dropsim.priors.prior import State

CLIP = stepping_clip(4.0)
FEET = ([7, 10], [8, 11])


@pytest.fixture(scope="module")
def field() -> MotionField:
    return MotionField(
        Bank.of([(CLIP, ClipInfo("step", "ours", "MIT", ("walk",), len(CLIP)), label_contacts(CLIP))]), CLIP.skeleton
    )


def state_at(field: MotionField, frame: int) -> State:
    """Somebody who follows the recording at a frame."""
    state = field.start_from(CLIP, frame)
    return replace(state, memory=remembered(field, state, frame))


def remembered(field: MotionField, state: State, row: float) -> np.ndarray:
    """The memory of somebody who has followed a frame's clip for a while."""
    memory = np.array(field.recall(state, state.x, state.q))
    memory[ROW] = row
    return memory


@pytest.mark.parametrize("frame", [10, 31, 62])
def test_on_the_recording_the_mode_is_its_next_frame(field, frame):
    # Rotations are kept to 0.1 mrad at half a metre from their joints, positions to 0.05 mm, in single precision.
    mode = field.propose(state_at(field, frame), 8, Streams(0)).pick(0)
    assert np.abs(mode.x - CLIP.joints[frame + 1]).max() < 2e-3
    assert mode.memory[0] == frame + 1


def test_an_offset_fades_by_half_in_a_half_life(field):
    frame = 10
    state = state_at(field, frame)
    turned = state.q.copy()
    turned[18] = exp(np.array([0.0, 0.3, 0.0])) @ turned[18]  # the left elbow
    state = replace(state, q=turned, x=field.skeleton.forward(turned, state.x[0]))
    apart = []
    for _ in range(round(field.half_life * field.fps) + 1):
        recorded = CLIP.q[int(state.memory[0]), 18]
        apart.append(np.arccos(np.clip((np.trace(recorded.T @ state.q[18]) - 1) / 2, -1, 1)))
        chosen = field.propose(state, 1, Streams(0)).pick(0)
        state = State(
            chosen.x, (chosen.x - state.x) * field.fps, chosen.q, remembered(field, state, state.memory[ROW] + 1)
        )
    # Five frames are 0.93 half-lives of 0.18 s at 30 Hz.
    assert 0.4 < apart[-1] / apart[0] < 0.6


def test_feet_that_stand_keep_their_place(field):
    checked = 0
    for frame in range(5, len(CLIP) - CLIP_END - 2, 3):
        state = state_at(field, frame)
        state = replace(state, x=state.x + np.array([0.02, -0.01, 0.0]))  # as a push would have moved the body
        mode = field.propose(state, 4, Streams(1)).pick(0)
        for side, foot in enumerate(FEET):
            if field.bank.standing[frame, side] and field.bank.standing[frame + 1, side]:
                # A foot turns about its heel or about its toes.
                assert np.abs(mode.x[foot, :2] - state.x[foot, :2]).max(-1).min() < 5e-3
                checked += 1
    assert checked > 10


def test_candidates_have_the_body_s_bones_and_are_above_the_floor(field):
    tall = MotionField(field.bank, Skeleton.adult(height=1.9))
    state = tall.start("walk" if (field.bank.speed > 0.8).any() else "stand", [1, 2, 3])
    candidates = tall.propose(state, 8, Streams([1, 2, 3]), Intent.toward(np.tile([0.0, 1.0], (3, 1))))
    assert tall.skeleton.bone_error(candidates.x).max() < 1e-9
    assert (candidates.x[..., 2] - tall.skeleton.radii).min() > -1e-9


def test_intents_are_heard():
    """Of people who go left and people who stay, those are taken who do what is wanted."""
    still, left = (
        CLIP,
        replace(
            CLIP, root=CLIP.root + np.linspace(0, 1, len(CLIP))[:, None] * np.array([-1.0, 0.0, 0.0]) * CLIP.duration
        ),
    )
    left = replace(left, joints=left.skeleton.forward(left.q, left.root))
    parts = [
        (m, ClipInfo(n, "ours", "MIT", ("walk",), len(m)), label_contacts(m))
        for n, m in (("still", still), ("left", left))
    ]
    field = MotionField(Bank.of(parts), CLIP.skeleton)
    state = field.start_from(still, 20)
    state = replace(state, v=state.v + np.array([-0.5, 0.0, 0.0]))  # half as fast as those who go: as near to both
    for velocity, name in (((-1.0, 0.0), "left"), ((0.0, 0.0), "still")):
        wanted = Intent(np.array(velocity), np.full(2, np.nan), np.array(np.nan))
        # Rows count through the frames of both clips, and then through their mirror images.
        row = int(field.propose(state, 1, Streams(0), wanted).memory[0, 0]) - 1
        assert field.bank.clips[int(row % len(field.bank) >= len(CLIP))].name == name


def test_of_one_moment_of_a_recording_there_is_one_candidate():
    # People who look like frame t, but follow the clip some frames later, as those do whom physics holds back, do not
    # go back either.
    field = MotionField.shipped()
    states = field.start("walk", list(range(32)))
    late = states.memory.copy()
    late[:, ROW] += 8
    candidates = field.propose(replace(states, memory=late), 4, Streams(list(range(32))))
    rows = np.where(np.isfinite(candidates.cost), candidates.memory[..., ROW] - 1, -1e9 * (1 + np.arange(4)))
    apart = np.abs(rows[:, :, None] - rows[:, None]) + 1e9 * np.eye(4)
    assert apart.min() >= MOMENT
    back = late[:, None, ROW] - rows
    assert not ((back > 0) & (back < MOMENT)).any()


def test_a_fall_costs_what_it_grows_to_until_the_next_foot_lands():
    # Like an inverted pendulum, by e in its time constant; a leg that is held up for long catches nobody.
    field = MotionField.shipped()
    standing, growth = np.asarray(field.bank.standing), field._index[0].growth[: len(field.bank)]
    some = np.random.default_rng(0).choice(np.flatnonzero(np.arange(len(standing)) + 31 < field.bank.last), 500)
    for i in some:
        landed = np.flatnonzero((standing[i + 1 : i + 31] & ~standing[i : i + 30]).any(-1))
        now = (standing[i] & ~standing[max(i - 1, field.bank.first[i])]).any()
        seconds = 0.0 if now else min((landed[0] + 1) / field.fps, LANDS) if len(landed) else LANDS
        assert growth[i] == pytest.approx(np.exp(seconds / FALL_TIME), rel=1e-6)


def test_people_who_are_head_down_go_on_with_their_cartwheel():
    # Legs above the body would be down within a frame if these people followed somebody upright.
    field = MotionField.shipped()
    starts = field.start("crouch", list(range(3740, 3800)))
    down = starts.x[:, 15, 2] < starts.x[:, 0, 2]
    assert down.any()
    head_down = starts[np.flatnonzero(down)]
    mode = field.propose(head_down, 4, Streams(list(range(down.sum())))).pick(0)
    assert np.linalg.norm(mode.x - head_down.x, axis=-1).max() * field.fps < 15.0
