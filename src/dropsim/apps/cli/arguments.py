"""Options that several commands share, and how arguments look in the help."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dropsim.files.atomic import refuse_read_only

if TYPE_CHECKING:
    from dropsim.scene.files import Setup


def optional(metavar: str, otherwise: str) -> Any:  # noqa: ANN401, tyro's own type is not exported
    """Annotate an argument whose default is None: what to give, and what holds when nothing is given."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


THE_SCENES = "the scene's own"
PriorName = Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
"""The motion prior, as `dropsim.priors.named.open_prior` takes it."""
BodyFile = Annotated[Path | None, optional("FILE", "none")]
"""SMPL's file of the body that HuMoR was trained on."""
RigMapFile = Annotated[Path | None, optional("MAP.toml", "found by themselves")]
"""Map of a file's joints to ours, as `dropsim rig` writes it."""


@dataclass(frozen=True, kw_only=True)
class PriorOptions:
    """Options for the motion prior."""

    prior: Annotated[str | None, optional("NAME|FILE", "the scene's own, else field")] = None
    """The motion prior: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options for files of models."""

    body: BodyFile = None
    """SMPL's file (.npz, .pkl) of the body that HuMoR was trained on."""
    pose: Annotated[Path | None, optional("FILE|FOLDER", "the package's")] = None
    """The model of natural poses: VPoser's checkpoint or folder, or a .safetensors file."""
    method: Annotated[Literal["default", "paper"] | None, optional("default|paper", "the scene's, if any")] = None
    """The method: ours, or `paper`, which is DROP as it was published."""


@dataclass(frozen=True, kw_only=True)
class RandomOptions:
    """Options for chance."""

    seed: Annotated[int | None, optional("INT", THE_SCENES)] = None
    """Seed of everything random: the same seed gives the same motion."""
    samples: Annotated[int | None, optional("K", "the scene's or the prior's own")] = None
    """Candidates of the prior a frame."""


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Options of pushes."""

    part: Annotated[str | None, optional("NAME", "the scene's own, or torso")] = None
    """Body part that is pushed: pelvis, torso, hand, foot, or a joint's name."""
    newtons: Annotated[float | None, optional("N", "the scene's own, or 250")] = None
    """Strength of pushes [N]."""
    direction: Annotated[str | None, optional("NAME|DEGREES", "the scene's own, or left")] = None
    """Direction of pushes: the person's front, back, left or right, or degrees counterclockwise from the front."""
    at: Annotated[float | None, optional("S", "the scene's own, or 2")] = None
    """Time at which pushes begin [s]."""
    duration: Annotated[float | None, optional("S", "the scene's own, or 0.5")] = None
    """Duration of pushes [s]."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of commands that write several files."""

    out: Path = Path("out")
    """Folder to write to; made when it is missing."""
    picture: bool = True
    """Also draw a strip of pictures."""


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(OutputOptions, RandomOptions, PriorOptions, ModelOptions, PushOptions):
    """Options of commands that simulate somebody who is pushed, and write files."""


@dataclass(frozen=True, kw_only=True)
class RigOptions:
    """Options that say what a BVH or GLB file leaves open."""

    up: Annotated[Literal["x", "y", "z"] | None, optional("x|y|z", "the rig's, or its rest pose's")] = None
    """Axis of the input BVH that points up."""
    unit: Annotated[float | None, optional("M", "told by the length of the legs")] = None
    """Metres per unit of the input BVH."""
    rig: RigMapFile = None
    """File that maps the input's joints to ours, as `dropsim rig` writes it."""
    animation: Annotated[str | None, optional("NAME", "the one that moves most joints")] = None
    """Animation of the input GLB."""

    def reading(self) -> dict[str, Any]:
        """Return the options as `dropsim.motion.reading` takes them."""
        return {"up": self.up, "unit": self.unit, "rig_map": read_map(self.rig), "animation": self.animation}


def read_map(path: Path | None) -> Any:  # noqa: ANN401, a RigMap, imported late
    """Read the map of a rig's joints; None if there is none."""
    from dropsim.motion.retarget import read_rig_map

    return None if path is None else read_rig_map(path)


def read_setup(scene: str) -> "Setup":
    """Read a scene file, or look up a ready scenario."""
    from dropsim.scene.files import read_scene
    from dropsim.scene.scenarios import scenario

    return read_scene(Path(scene)) if scene.lower().endswith(".toml") else scenario(scene)


def refuse_output(output: Path, *sources: Path) -> None:
    """Refuse, before long work, to write over a file that is read, onto a folder or where nothing can be written."""
    if output.exists() and any(source.exists() and output.samefile(source) for source in sources):
        raise ValueError(f"{output}: is the input itself: write to another file")
    if output.is_dir():
        raise ValueError(f"{output}: is a folder: give the name of a file")
    refuse_read_only(output)
