"""Wrong command lines: each gets one sentence that says what to do, exit code 2, and leaves no file behind."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.motion.amass import write_amass
from dropsim.motion.bvh import write_bvh
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.pose import PosePrior

WRONG = {
    "frobnicate": "there is no command 'frobnicate': use one of bank, bench, clean, convert,",
    "rnu push": "there is no command 'rnu': did you mean 'run'?",
    "--tyro-print-completion": "--tyro-print-completion: name a shell, bash, zsh, tcsh, fish",
    "--tyro-write-completion ksh file": "name a shell",
    "info --verbose": "unrecognized",
    # run
    "run": "missing from dropsim run: NAME|FILE.toml",
    "run psuh": "there is no scenario 'psuh': did you mean push?",
    "run missing.toml": "missing.toml: No such file",
    "run mistyped.toml": "left_elbow",
    "run unknown.toml": "no field 'newton'",
    "run broken.toml": "broken.toml",
    "run push --seconds 0": "above 0",
    "run push --seconds 1e9": "at most",
    "run push --out notes.txt": "give a folder",
    "run push --out push.bvh": "give a folder",
    "run push --seed -1": "whole number",
    "run push --seed 1.5": "--seed: '1.5' is not a whole number",
    "run push --part LeftAnkel": "--part: there is no joint 'LeftAnkel': did you mean 'left_ankle'?",
    "run push --newtons nan": "--newtons: push newtons is a number [N]",
    "run push --newtons -5": "turn the direction, not the s",
    "run push --newtns 300": "unrecognized options: --newtns, 300: did you mean --newtons?",
    "run push --direction upward": "use front, left, back, right",
    "run push --duration 0": "push duration has to be in (0, inf), not 0",
    "run push --start swim": "use one of stand",
    "run push --set push.newton=3": "--set push.newton: push has no field 'newton': did you mean 'newtons'?",
    "run push --set seconds": "write a path, = and a value",
    "run push --set clip=none.bvh": "none.bvh",
    "run push --set clip=walk.fbx": "walk.fbx: a motion file ends in .bvh",
    "run push --set 'person.1.position=[0, 0.1]'": "people 0 and 1 start inside each other",
    "run push --save scene.txt": "ends in .toml",
    "run push --prior nowhere.bank": "is not there",
    "run push --prior fild": "did you mean 'field'",
    "run push --prior cvae --body notes.npz": "a body is for HuMoR's checkpoint",
    "run push --prior nowhere.pth": "nowhere.pth is not there",
    "run push --prior notes.npz": "a .bank or .safetensors file, HuMoR's best_model.pth or a folder",
    "run push --prior notes.pth": "--body",
    "run push --prior notes.pth --body nowhere.npz": "nowhere.npz",
    "run push --prior notes.pth --body steps.npz": "steps.npz",
    "run push --prior poses.safetensors": "poses.safetensors",
    "run push --prior cvae --pose notes.pth": "notes.pth",
    "run push --prior cvae --pose nowhere": "nowhere is not there: give VPoser's checkpoint",
    "run push --samples 0": "num_samples has to be between 1 and 4096",
    "demo --seed two": "'two' is not a whole number",
    "demo --out notes.txt": "--out notes.txt: give a folder",
    # live worlds
    "view --port 99999": "0 to 65535",
    "view --people 0": "--people: a live world has 1 to 6 people, not 0",
    "view --start swim": "there is no start 'swim'",
    "view --seconds -1": "above 0",
    "view --host no.such.host.invalid": "no host",
    "view --vmc here:there": "HOST:PORT",
    "view psuh": "there is no scenario",
    "view --prior nowhere.safetensors": "nowhere.safetensors is not there",
    "live --vmc 127.0.0.1:0": "HOST:PORT",
    "live --vmc no.such.host.invalid:39539": "no host",
    "live --rate 50": "rate",
    "live --listen 70000": "HOST:PORT",
    "live --hip-height -1": "hips are",
    "live --people 9": "1 to 6",
    "live --prior cvae psuh": "there is no scenario 'psuh'",
    # motions
    "render only.mp4": "at least one motion",
    "render notes.npz film.mp4": "not an npz archive",
    "render none.npz film.gif": "No such file",
    "render notes.npz film.avi": ".mp4, .gif or .png",
    "render notes.npz a.png --size big": "1280x720",
    "render notes.npz a.png --at 3 --contact-sheet": "--at is for a single picture",
    "render steps.npz a.mp4 --at 1": "--at is for a single picture",
    "render steps.npz a.png --at 77": "from 0 to 0.77 s",
    "render steps.npz steps.bvh": "the last file is the one to write",
    "render notes.txt a.mp4": "a motion file ends in",
    "render nan.npz a.mp4": "expected finite numbers",
    "render steps.npz a.mp4 --ghost none.bvh": "none.bvh: No such file",
    "render steps.npz folder.gif": "is a folder",
    "render steps.npz steps.npz/a.mp4": "steps.npz",
    "render steps.npz a.mp4 --contact-sheet": "a contact sheet is a picture",
    "render steps.npz a.png --contact-sheet --frames 0": "at least one frame",
    "render steps.npz a.mp4 --size 4x4": "from 16 pixels",
    "render steps.npz a.mp4 --size 99999x99999": "up to 3840 x 2160",
    "render steps.npz a.mp4 --fps nan": "nan frames per second",
    "convert steps.bvh ./steps.bvh": "is the input itself",
    "convert steps.bvh symbolic.bvh": "is the input itself",
    "convert steps.bvh hard.bvh": "is the input itself",
    "convert cut.bvh steps.npz": "cut.bvh:",
    "convert empty.bvh a.glb": "empty or cut off",
    "convert steps.npz a.fbx": "ends in '.fbx': use one of .bvh (BVH), .npz (AMASS), .glb",
    "convert clip.c3d a.bvh": "ends in .bvh (BVH) or .npz (AMASS) or .glb (glTF), not in '.c3d'",
    "convert notes.glb a.bvh": "not a GLB file",
    "convert notes.bvh a.npz": "notes.bvh:1:",
    "convert thing.bvh a.npz": "left_knee",
    "convert steps.npz folder.bvh": "is a folder",
    "convert missing.npz steps.bvh": "missing.npz: No such file",
    "convert steps.bvh a.npz --rig missing.toml": "missing.toml: No such file",
    "convert steps.bvh a.npz --fps 0": "frames per second",
    "convert steps.bvh a.npz --fps 1e9": "up to 1000",
    "convert steps.bvh a.npz --unit 0": "positive number of metres",
    "convert steps.npz a.csv --out-up y --out-unit 1": "leave out up and unit",
    "convert steps.npz a.bvh --up y --unit 1": "leave out up and unit",
    "clean none.bvh a.bvh": "none.bvh: there is no such file or folder",
    "clean steps.npz steps.npz": "is the input itself",
    "clean steps.npz out.npz --strength brutal": "gentle",
    "clean steps.npz out.xyz": "cannot write a motion",
    "clean short.npz out.npz": "at least 4",
    "clean nan.npz out.npz": "nan.npz",
    "clean steps.bvh out.bvh --fps 60": "leave out --fps",
    "perturb empty.bvh": "empty or cut off",
    "perturb walk.fbx": "export the animation from Blender as GLB or BVH",
    "perturb steps.npz --at 5": "choose a time inside it",
    "perturb steps.npz --at 0.4 --direction up": "no direction",
    "perturb steps.npz --at 0.4 --newtons nan": "force of 0 N or more",
    "perturb steps.npz --at 0.4 --part tail": "no joint",
    "perturb steps.npz --at 0.4 --seconds -1": "between 0 and 3600",
    "perturb steps.npz --at 0.4 --out steps.npz": "steps.npz",
    # banks, data and research
    "bank": "missing",
    "bank burn x": "use one of build, info",
    "bank info none.bank": "is not there",
    "bank build nowhere": "nowhere is not a folder",
    "bank build folder": "folder",
    "bank build folder --minutes -1": "minutes",
    "bench --seconds 0": "above 0",
    "bench --prior crystal-ball": "there is no prior",
    "bench --json none/x.json": "no such folder",
    "evaluate paper": "missing from dropsim evaluate paper: --out",
    "evaluate psuh": "unrecognized options: psuh: use one of ",
    "synthesize --count -1 --out data": "count",
    "train nothing": "use one of prior, pose",
}
"""What is typed, and a part of what is answered."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that some commands name."""
    folder, clip = tmp_path_factory.mktemp("files"), stepping_clip(0.8)
    for name in ("notes.txt", "notes.npz", "notes.bvh", "notes.glb", "notes.pth", "clip.c3d"):
        (folder / name).write_text("shopping list")
    (folder / "empty.bvh").write_text("")
    for name in ("folder", "folder.bvh", "folder.gif"):
        (folder / name).mkdir()
    (folder / "mistyped.toml").write_text('[[person]]\n[[push]]\npart = "left_elbo"\nnewtons = 3\ndirection = "left"\n')
    (folder / "unknown.toml").write_text("[[person]]\n[[push]]\nnewton = 3\n")
    (folder / "broken.toml").write_text("[[person\n")
    joint = "ROOT thing\n{\nOFFSET 0 0 0\nCHANNELS 1 Xrotation\nEnd Site\n{\nOFFSET 0 1 0\n}\n}"
    (folder / "thing.bvh").write_text(f"HIERARCHY\n{joint}\nMOTION\nFrames: 2\nFrame Time: 0.1\n0\n0\n")
    write_bvh(clip, folder / "steps.bvh")
    (folder / "cut.bvh").write_text((folder / "steps.bvh").read_text()[:-100])
    (folder / "symbolic.bvh").symlink_to("steps.bvh")
    (folder / "hard.bvh").hardlink_to(folder / "steps.bvh")
    PosePrior.shipped().save(folder / "poses.safetensors")
    write_amass(clip, folder / "steps.npz")
    write_amass(clip.slice(0, 2), folder / "short.npz")
    with np.load(folder / "steps.npz") as file:
        content = dict(file)
    content["trans"][3] = np.nan
    np.savez(folder / "nan.npz", **content)
    return folder


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_command_gets_a_sentence(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
):
    monkeypatch.chdir(files)
    monkeypatch.delenv("DROPSIM_DEBUG", raising=False)
    monkeypatch.setattr("dropsim.compute.jit.compiled", lambda: True)
    before = {path: path.stat().st_mtime_ns for path in files.rglob("*")}
    assert main(shlex.split(command)) == 2
    out, err = capsys.readouterr()
    assert WRONG[command] in err
    assert "wrote" not in out
    assert err.startswith("dropsim: ")
    assert err.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in files.rglob("*")} == before
