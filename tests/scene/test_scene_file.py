"""Scene files: every scene comes back from its file, and whatever is wrong is named with its line."""

import dataclasses
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dropsim.motion.amass import write_amass
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.recording import ClipPrior
from dropsim.scene import (
    Ball,
    Dodge,
    Drag,
    Follow,
    Ground,
    Obstacle,
    Person,
    Pin,
    Push,
    Scene,
    StiffJoint,
    Throw,
    Trip,
    files,
)
from dropsim.scene.files import MANY, SINGLE, TOP, Setup, SimulatorOptions, changed, keys_of, read_scene, write_scene
from dropsim.scene.scenarios import SCENARIOS, scenario

EVERYTHING = Setup(
    name="every thing",
    description='Quotes ", backslashes \\, a # and a tab\t, and\nüñï.',
    seconds=1 / 3,
    seed=7,
    scene=Scene(
        (Person("run", (0.1, -2.0), 1e-7), Person("stand", (3.0, 0.0))),
        (
            Obstacle((0.0, 9.0, 0.0), 0.2),
            Push("left_foot", (1.0, 2.0, 3.0), 0.5, 0.1, 1),
            Drag(path=((0.0, 0.0, 0.0, 1.0), (1.0, 0.1, 0.2, 0.3)), relative=True),
            Push.toward("30", 120.5, part="hand"),
            Pin("left_wrist", (0.1, 0.2, 0.3)),
            Pin("left_wrist", start=5.0),
            Ball(),
            Throw(person=1),
            Trip(obstacle=(1.0, 2.0)),
            Follow.square(1.2),
            Dodge(person=1),
            StiffJoint(),
        ),
        Ground(((0.5, 0.0, 0.0), (1.0, 10.0, -5.0)), (0.5, 0.25)),
        get_up=False,
    ),
    simulator=SimulatorOptions(num_samples=3, correct=False, friction=0.3),
)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "scene.toml"
    path.write_text(text, encoding="utf-8")
    return path


# --- there and back


@pytest.mark.parametrize("setup", [*SCENARIOS.values(), EVERYTHING, Setup()], ids=lambda setup: setup.name)
def test_a_written_scene_reads_back_equal(setup: Setup, tmp_path: Path):
    write_scene(setup, tmp_path / "new" / "scene.toml")
    assert read_scene(tmp_path / "new" / "scene.toml") == setup


def test_a_written_scene_explains_itself(tmp_path: Path):
    write_scene(scenario("push"), tmp_path / "push.toml")
    text = (tmp_path / "push.toml").read_text(encoding="utf-8")
    assert "start = 2.0  # [s]" in text
    assert 'direction = "left"' in text
    assert "newtons = 250.0  # [N]" in text
    assert re.search(r"^seconds = 6.0  # .+ \[s\]\.$", text, re.MULTILINE)
    assert "force =" not in text


def test_what_a_file_leaves_out_has_its_default(tmp_path: Path):
    assert read_scene(written(tmp_path, "")) == Setup(name="scene")
    push = read_scene(written(tmp_path, "\ufeff[[push]]\r\nforce = [1, 2, 3]\r\n")).scene.elements
    assert push == (Push(force=(1.0, 2.0, 3.0)),)


def test_the_order_of_elements_is_that_of_the_file(tmp_path: Path):
    kinds = [
        type(e) for e in read_scene(written(tmp_path, "[[ball]]\n[[obstacle]]\n[[ball]]\nmass = 2\n")).scene.elements
    ]
    assert kinds == [Ball, Obstacle, Ball]


def test_a_clip_is_relative_to_its_scene_file(tmp_path: Path):
    write_amass(stepping_clip(0.5), tmp_path / "clips" / "step.npz")
    (tmp_path / "scenes").mkdir()
    path = written(tmp_path / "scenes", 'clip = "../clips/step.npz"\nhandover = "200 ms"\n')
    setup = read_scene(path)
    assert setup.clip == str(tmp_path / "clips" / "step.npz")
    prior = setup.world().simulator.prior
    assert isinstance(prior, ClipPrior)
    assert prior.handover == 6  # 0.2 s at 30 Hz
    write_scene(setup, tmp_path / "other.toml")
    assert f'clip = "{os.path.join("clips", "step.npz")}"' in (tmp_path / "other.toml").read_text()
    assert read_scene(tmp_path / "other.toml") == setup


def test_the_schema_is_the_dataclasses():
    for cls in (*MANY.values(), *SINGLE.values()):
        assert set(keys_of(cls)) == {f.name for f in dataclasses.fields(cls) if f.init}
    assert set(TOP) == {"name", "description", "seconds", "seed", "clip", "handover", "prior", "body", "pose", "get_up"}
    assert set(files.short_keys(Push)) == {"direction", "newtons"}
    assert set(files.short_keys(Follow)) == {"speed", "every", "seconds"}
    assert len(files.ELEMENTS) == 18


def test_lengths_times_and_forces_have_units():
    # Whoever adds a field [m] gives it the type Metres: a file may then say "7 cm".
    plain = {"weight", "friction", "leaf_damping", "threshold", "scale", "bounce"}
    plain |= {"largest_load", "largest_bearing"}
    for cls in (*MANY.values(), *SINGLE.values(), Setup):
        for name, key in keys_of(cls).items():
            kind, unit = files.plain_type(key.wanted)
            assert kind is not float or unit or name in plain or name.endswith("_weight"), f"{cls.__name__}.{name}"


# --- units


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ('duration = "300 ms"', "duration", 0.3),
        ('duration = "0.5 s"', "duration", 0.5),
        ('duration = "0.5"', "duration", 0.5),
        ('force = ["0.25 kN", 0, "-1e1 N"]', "force", (250.0, 0.0, -10.0)),
        ('newtons = "250N"\ndirection = "front"', "force", pytest.approx((0.0, 250.0, 0.0), abs=1e-9)),
    ],
)
def test_numbers_may_have_units(tmp_path: Path, line: str, field: str, value: object):
    (push,) = read_scene(written(tmp_path, f"[[push]]\n{line}\n")).scene.elements
    assert getattr(push, field) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[obstacle]]\nradius = "7 cm"', Obstacle(radius=0.07)),
        ('[[throw]]\nangle = "30 deg"\nspeed = "36 km/h"\nmass = "4500 g"', Throw(angle=30.0, speed=10.0, mass=4.5)),
        ('[[follow]]\nspeed = "1.2 m/s"\nseconds = 8\nweight = 0.5', replace(Follow.square(1.2, seconds=8.0), weight=0.5)),
        ('[[follow]]\nvelocities = [[0, 0, "1.2 m/s"], ["500 ms", 1, 0]]', Follow(((0.0, 0.0, 1.2), (0.5, 1.0, 0.0)))),
    ],
)  # fmt: skip
def test_units_are_converted_exactly(tmp_path: Path, text: str, expected: object):
    assert read_scene(written(tmp_path, text)).scene.elements == (expected,)


# --- what is refused


MISTAKES = [
    ("\n[[push]]\npart = 'hand'\nfroce = [1, 0, 0]", 4, "push has no field 'froce': did you mean 'force'?"),
    ("[[push]]\nxyzzy = 1", 2, "push has no field 'xyzzy': use one of part, force,"),
    ("secnods = 3", 1, "a scene has no 'secnods': did you mean 'seconds'?"),
    ("[[psuh]]\nstart = 1", 1, "a scene has no 'psuh': did you mean 'push'?"),
    ("[simulator]\nfriciton = 1", 2, "simulator has no field 'friciton': did you mean 'friction'?"),
    ("\n[push]\nstart = 1", 2, "write [[push]] in two brackets"),
    ("[[ground]]", 1, "ground is a table: write [ground]"),
    ("ground = 3", 1, "ground is a table"),
    ("push = [1]", 1, "push is a table"),
    ("seconds = 'many'", 1, "seconds is a number [s], not 'many'"),
    ("seconds = true", 1, "seconds is a number [s], not True"),
    ("seconds = 1979-05-27", 1, "seconds is a number [s], not datetime"),
    ("seed = 1.5", 1, "seed is a whole number, not 1.5"),
    ("[[person]]\nstart = 3", 2, "person start is text in quotes, not 3"),
    ("[simulator]\nreact = 0", 2, "simulator react is true or false, not 0"),
    ("[[push]]\n[[push]]\nforce = [1, 2]", 3, "push force is a list of 3 numbers in brackets, not [1, 2]"),
    ("[[push]]\nforce = [1, 2, nan]", 2, "push force is a number [N] of at most 1e+12, not nan"),
    ("[[push]]\nforce = [1, 2, 1e999]", 2, "push force is a number [N] of at most 1e+12, not inf"),
    ("[[push]]\nstart = 1" + "0" * 400, 2, "push start is a number [s] of at most 1e+12"),
    ("[[drag]]\npath = [\n  [0, 0, 0, 0],\n  [1, 0, 0],\n]", 2, "drag path row 1 is a list of 4 numbers"),
    ("[[push]]\nduration = '3 N'", 2, "push duration is a number [s], such as 3 s, and 'N' is no unit of it"),
    ("[[pin]]\nweight = '3 kg'", 2, "pin weight is a plain number, and 'kg' is no unit of it"),
    ("[[push]]\nduration = 0", 1, "push duration has to be in (0, inf), not 0"),
    ("[[push]]\npart = 'tail'", 1, "there is no joint 'tail'"),
    ("\n[[push]]\nperson = 2", 0, "push is for person 2, and the scene has people 0 to 0"),
    ("[[push]]\nforce = [0, 0, 0]\nnewtons = 3", 1, "push has both 'force' and 'newtons': leave one out"),
    ("[[push]]\nnewtons = 3", 1, "push has 'newtons' and needs 'direction' too"),
    ("[[push]]\nnewtons = -3\ndirection = 'left'", 1, "turn the direction, not the sign"),
    ("[[drag]]\npath = [[0, 0, 0, 0]]", 1, "a drag needs 2 or more rows of 4 numbers"),
    ("[[push]]\nstart 3", 2, "is not TOML"),
    ("seconds = 0", 0, "seconds must be above 0 and at most 3600"),
    ("seconds = 1e9", 0, "seconds must be above 0 and at most 3600"),
    ("seed = -1", 0, "a seed is a whole number from 0"),
    ("name = '../up'", 0, "cannot be a file's"),
    ("name = ''", 0, "cannot be a file's"),
    ("handover = 1", 0, "handover needs a clip"),
    ("clip = 'a.bvh'\n[[person]]\n[[person]]\nposition = [2, 0]", 0, "has one person, not 2"),
    ("[planner]\nnum_rollouts = 1000000", 0, "frames are more than 100000"),
    ("[simulator]\nnum_samples = 1000000", 1, "between 1 and 4096"),
    ("[[pin]]\n[[pin]]\nstart = 1.5", 0, "pin 0 and pin 1 both hold the right_wrist of person 0"),
    ("[[follow]]\n\n[[follow]]", 0, "follow 0 and follow 1 both lead person 0"),
    ("[[trip]]\n[[pin]]\njoint = 'right_ankle'", 0, "trip 0 and pin 0 both hold the right_ankle"),
    ("[[drag]]\npath = [[0, 0, 0, 0], [9, 0, 0, 0]]\n[[pin]]", 0, "drag 0 and pin 0 both hold"),
]
"""Text, line or 0 where it is about the whole scene, and the sentence."""


@pytest.mark.parametrize(("text", "line", "sentence"), MISTAKES)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, line: int, sentence: str):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        read_scene(path)
    assert str(error.value).startswith(f"{path} line {line}: " if line else f"{path}: ")
    assert "\n" not in str(error.value)


def test_what_only_looks_contradictory(tmp_path: Path):
    # One after the other, of different people, of different joints; two obstacles on one way.
    pins = "[[pin]]\n[[pin]]\nstart = 2\n[[pin]]\nperson = 1\n[[pin]]\njoint = 'head'\n"
    text = f"[[person]]\n[[person]]\nposition = [2, 0]\n{pins}[[trip]]\n[[trip]]\n"
    assert len(read_scene(written(tmp_path, text)).scene.elements) == 6


def test_files_that_are_none(tmp_path: Path):
    (tmp_path / "large.toml").write_bytes(b"#" * 1_000_001)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 50_000)
    for name, sentence in (("large", "at most 1"), ("binary", "UTF-8"), ("deep", "is not TOML")):
        with pytest.raises(ValueError, match=sentence):
            read_scene(str(tmp_path / f"{name}.toml"))
    with pytest.raises(OSError, match="No such file"):
        read_scene(tmp_path / "missing.toml")


LONG = "a" * 100_000
BROKEN = {
    "rows of a square": ("[[follow]]\nspeed = 1\nevery = 1e-9\nseconds = 3600", "no more than 10000 turns"),
    "rows of nothing": ("[[follow]]\nspeed = 1\nevery = 1e-300\nseconds = 1e300", "at most 1e+12"),
    "a huge number": (f"seed = 0x{'f' * 1900}", "seed is a whole number below 2^63"),
    "a huge time": (f"seconds = 0x{'f' * 1900}", "seconds is a number [s] of at most 1e+12"),
    "a long key": (f"\n[[push]]\n{LONG} = 1", "line 3: push has no field 'aaaa"),
    "a long text": (f"[[push]]\npart = '{LONG}'", "there is no joint 'aaaa"),
    "many lines": ("name = '''" + "aaaa\n" * 20_000 + "'''", "cannot be a file's"),
    "an open string": ('name = "' + '\\"' * 400_000, "is not TOML"),
    "deep lists": (f"seconds = {'[' * 400}{']' * 400}", "seconds is a number [s]"),
    "deep tables": (f"[push.{'a.' * 900}a]", "nested too deeply"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_briefly(tmp_path: Path, name: str):
    text, sentence = BROKEN[name]
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        read_scene(path)
    assert len(str(error.value)) < len(str(path)) + 700


def test_a_file_without_an_end_is_refused():
    if Path("/dev/zero").exists():
        with pytest.raises(ValueError, match="at most 1 MB"):
            read_scene("/dev/zero")


def test_an_element_of_ones_own_has_no_table(tmp_path: Path):
    class Wind(Dodge):
        """Something else."""

    with pytest.raises(ValueError, match="a scene file knows no Wind"):
        write_scene(Setup(scene=Scene(elements=(Wind(),))), tmp_path / "scene.toml")
    with pytest.raises(ValueError, match=r"ends in \.toml"):
        write_scene(Setup(), tmp_path / "scene.json")


def test_tables_may_be_spelt_in_other_ways(tmp_path: Path):
    text = 'description = """\n[[pin]]\n"""\npush = [{}, {start = 1}]\n["ground"]\npivot = [1, 2]\n[[pin]]\n'
    setup = read_scene(written(tmp_path, text))
    assert [type(e) for e in setup.scene.elements] == [Push, Push, Pin]
    assert setup.scene.ground.pivot == (1.0, 2.0)


# --- changing


def test_changes_by_dotted_paths():
    setup = changed(
        scenario("push"),
        [
            ("push.newtons", "300"),
            ("push.0.part", "hand"),
            ("person.start", "run"),
            ("seconds", "8 s"),
            ("simulator.react", "false"),
        ],
    )
    expected = Scene((Person("run", speed=1.2),), (Push.toward("left", 300.0, part="hand"),))
    assert setup == replace(scenario("push"), scene=expected, seconds=8.0, simulator=SimulatorOptions(react=False))


def test_a_change_without_a_number_is_for_all():
    speeds = {
        e.speed for e in changed(scenario("projectiles"), [("throw.speed", "9")]).scene.elements if isinstance(e, Throw)
    }
    assert speeds == {9.0}


def test_a_change_can_add_and_replace():
    setup = changed(
        scenario("push"), [("pin.0.joint", "head"), ("push.0.force", "[1, 2, 3]"), ("ground.pivot", "[0, 1]")]
    )
    assert setup.scene.elements == (Push(force=(1.0, 2.0, 3.0)), Pin("head"))
    assert setup.scene.ground == Ground(pivot=(0.0, 1.0))
    assert changed(scenario("follow"), [("follow.speed", "2")]).scene.elements == (Follow.square(2.0),)


def test_no_change_changes_nothing():
    assert all(changed(setup, []) == setup for setup in (*SCENARIOS.values(), EVERYTHING))


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("push.froce", "1", "push.froce: push has no field 'froce': did you mean 'force'?"),
        ("psuh.force", "1", "a scene has no 'psuh': did you mean 'push'?"),
        ("ball.mass", "1", "the scene has 0 of ball: write ball.0.KEY to add one"),
        ("push.2.start", "1", "write push.0.KEY for one of them, push.KEY for all, and push.1.KEY to add one"),
        ("push", "1", "write push.0.KEY for one of them"),
        ("push.0", "1", "write push.0.KEY for one of them"),
        ("push.x.start", "1", "write push.0.KEY for one of them"),
        ("push.0.force.1", "1", "write push.0.KEY for one of them"),
        ("planner", "1", "write planner.KEY, and no more"),
        ("seconds.x", "1", "write seconds, and no more"),
        ("seconds", "many", "seconds is a number [s], not 'many'"),
        ("seconds", "1\nseed = 3", "seconds is a number [s]"),
        ("push.person", "1", "push is for person 1"),
        ("", "1", "a scene has no ''"),
        ("seed", f"0x{'f' * 100_000}", "seed is a whole number below 2^63"),
        ("x" * 100_000, "1", "a scene has no 'xxxx"),
    ],
)
def test_changes_that_cannot_be(path: str, value: str, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        changed(scenario("push"), [(path, value)], said=lambda path: f"{path[:40]}: ")
    assert len(str(error.value)) < 700


# --- what it builds


def test_the_options_reach_the_simulator():
    options = SimulatorOptions(num_samples=4, contact=False, correct=False, friction=0.5)
    assert Setup(simulator=options).world().simulator.options == options


@pytest.mark.parametrize(
    "text", ["a" + ".a" * 1300 + " = 1", "[a" + ".a" * 60 + "]", "[[person]]\n" * 1001, "#" * 1_000_001]
)
def test_texts_that_ask_for_more_than_a_scene_has_are_refused_before_they_are_built(text, tmp_path):
    path = tmp_path / "scene.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"scene\.toml"):
        read_scene(path)
