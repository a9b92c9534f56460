"""The paper's eight results as verdicts: its claim, our measurement, and whether they agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.physics.options import SimulatorOptions
from dropsim.research.evaluation.bench import Row
from dropsim.research.evaluation.harness import Arrays
from dropsim.research.evaluation.recordings import KINDS, Recorded

PUSHED = (63, 78)
"""Frames of the push: the paper's."""
FOLLOWS = {"follow": 1.2, "follow-run": 2.5, "lead-by-hand": 1.2, "lead-by-hand-run": 2.5}
"""Scenarios and the speeds that they ask for [m/s]."""
BEFORE = slice(10, PUSHED[0])
"""Frames without a push; the first few still come from the start state."""
DURING = slice(PUSHED[0] + 1, PUSHED[1] + 1)
"""Frames that the push makes: it acts from frame 63 to the next, and so on."""
STEPPING = slice(PUSHED[1] + 1, PUSHED[1] + 31)
"""The second after it."""
RECOVERY = slice(100, 150)
"""The paper's frames of recovery."""
END = slice(-30, None)
"""The last second."""
FPS = 30.0
SETTLE = 1.5
"""Time after a turn of the path that is left out of the speed [s]."""

TINY = 1e-12
"""Energy that counts as none [m^2]: a micrometre."""
BACK = 1.25
"""Energies within this ratio of the unperturbed level are back."""
AGREES = 0.05
"""Share of the peak under a push below which E_kin is small."""
RISE = 2.0
"""A rise is at least this ratio."""
LESS = 0.30
"""Share by which the manifold lowers E_kin, as the paper says."""
WORSE = 5.0
"""Ratio by which energies are higher without contact and range of motion, as the paper says."""
NOTICEABLE, ALIKE = 0.1, 0.9
"""A root wrench that is not zero [body weights], and the correlation of curves that are similar."""
SPEED_ERROR, LED_UPRIGHT = 0.15, 0.75
"""Largest relative error of a speed, and smallest share of followers on their feet at the end."""
PAPER_FPS = 10.0


@dataclass(frozen=True)
class Claim:
    """One result of the paper and our measurement of it."""

    id: str
    claim: str
    """Sentence of the paper."""
    number: float | None
    """Number that is compared with the bound; None if it was not measured."""
    bound: str
    reproduced: bool | None
    """True if the number is within the bound; None if it was not measured."""
    finding: str
    """Measurement in a sentence."""

    @property
    def verdict(self) -> str:
        """Word for the outcome."""
        return "not run" if self.reproduced is None else "reproduced" if self.reproduced else "not reproduced"

    @property
    def cell(self) -> str:
        """Number and verdict."""
        return self.verdict if self.number is None else f"{self.number:.3g}, {self.verdict}"


def median(arrays: Arrays, name: str, frames: slice) -> float:
    """Return the median over people of an energy in each frame, and of that the mean over some frames [m^2]."""
    return float(np.median(arrays[f"energy_{name}"], axis=0)[frames].mean())


def ratio(value: float, to: float) -> float:
    """Return one energy over another; 0 over 0 is 1."""
    return 1.0 if value == to == 0 else value / to if to > 0 else float("inf")


def compared(arrays: Arrays, to: Arrays, name: str, frames: slice) -> float:
    """Return the median energy of some people over that of others."""
    return ratio(median(arrays, name, frames), median(to, name, frames))


def pushed_walk(walks: Arrays) -> Claim:
    """Judge the energies of pushed walks by medians over those that stay on their feet."""
    up = np.flatnonzero(~walks["fallen"].any(axis=1))
    chosen = up if len(up) else np.arange(len(walks["fallen"]))

    def of(name: str, frames: slice) -> np.ndarray:
        return walks[f"energy_{name}"][chosen, frames].mean(1)

    momentum = float(np.median(of("momentum", DURING) / np.maximum(of("momentum", BEFORE), TINY)))
    pose_before = float(np.median(of("range_of_motion", BEFORE)))
    pose = float(np.median(np.maximum(of("range_of_motion", DURING), of("range_of_motion", STEPPING))))
    stepping = float(np.median(of("kinematic", STEPPING) / np.maximum(of("kinematic", BEFORE), TINY)))
    # Single frames of a walk scatter, so that its end is held against most of what it does unperturbed.
    kinematic = walks["energy_kinematic"][chosen]
    before = np.maximum(np.quantile(kinematic[:, BEFORE], 0.95, axis=1), TINY)
    end = float(np.median(np.median(kinematic[:, END], axis=1) / before))
    return Claim(
        "pushed-walk",
        "Of a pushed walk the range-of-motion and momentum energies rise at the push, "
        "E_kin stays high while stepping, all return.",
        end,
        "E_kin at the end at most 1 x its 95th percentile before the push, "
        f"and momentum, pose and stepping E_kin up by {RISE:g}",
        end <= 1.0 and min(momentum, stepping) >= RISE and pose > RISE * pose_before,
        f"momentum x {momentum:.1f} in the push, range of motion from {pose_before:.2g} to {pose:.2g} m^2, "
        f"E_kin x {stepping:.0f} in the second after it; medians of {len(chosen)} walks, "
        f"{len(up)} of {len(walks['fallen'])} stay on their feet",
    )


def agreement(full: Arrays, calm: Arrays) -> Claim:
    """Judge the paper's first hypothesis: in ordinary motion the prior agrees with physics."""
    ordinary = median(calm, "kinematic", slice(BEFORE.start, None))
    peak = float(np.median(full["energy_kinematic"], axis=0).max())
    # E = w / 2 times the sum of squares over the joints.
    distance = 1000 * (2 * ordinary / (SimulatorOptions().kinematic_weight * NUM_JOINTS)) ** 0.5
    number = ratio(ordinary, peak)
    return Claim(
        "agreement",
        "In ordinary motion the kinematic energy agrees with the others.",
        number,
        f"unpushed at most {AGREES:g} x its peak under a push",
        number <= AGREES,
        f"median E_kin of unpushed people {ordinary:.2g} m^2, joints {distance:.1f} mm from the nearest candidate "
        f"(root mean square); {peak:.2g} m^2 at the peak of the pushed",
    )


def back_to_level(full: Arrays, calm: Arrays, longer: Arrays) -> Claim:
    """Judge whether the medians over many pushed motions return; the paper does not say within what time."""
    level, peak = median(longer, "kinematic", BEFORE), float(np.median(full["energy_kinematic"], axis=0).max())
    number = ratio(median(longer, "kinematic", END), level)
    curve = np.median(longer["energy_kinematic"], axis=0)[PUSHED[1] :]
    seconds = curve[: len(curve) // 30 * 30].reshape(-1, 30).mean(1)
    first = np.flatnonzero(seconds <= BACK * level)
    when = f"back {first[0] + 1} s after the push" if len(first) else "not back"
    twins = ratio(median(full, "kinematic", END), median(calm, "kinematic", END))
    usual = np.quantile(calm["energy_kinematic"][:, BEFORE.start :], 0.95)
    back = float((full["energy_kinematic"][:, END].mean(1) <= usual).mean())
    lost, frames = int((~full["finished"]).sum()), full["energy_kinematic"].shape[1]
    return Claim(
        "back-to-level",
        "The median E_kin of 250 pushed motions falls back to its unperturbed level by the end.",
        number,
        f"at most {BACK:g} x the level before the push",
        number <= BACK,
        f"median E_kin {level:.2g} m^2 before the push, {peak:.2g} at its peak, "
        f"{median(longer, 'kinematic', END):.2g} in the last of {longer['energy_kinematic'].shape[1] / FPS:.0f} s, "
        f"{when}; after {frames / FPS:.0f} s {twins:.2g} x that of the same people unpushed, {back:.0%} within their "
        f"95th percentile and {full['upright'][:, -1].mean():.0%} upright; "
        f"{len(full['finished'])} motions, {lost} diverged",
    )


def manifold(full: Arrays, mean: Arrays) -> Claim:
    """Judge the manifold of K samples against the prior's mode alone."""
    with_k = median(full, "kinematic", RECOVERY)
    number = 1 - ratio(with_k, median(full, "kinematic_mode", RECOVERY))
    alone, at_once = (compared(mean, full, "kinematic", frames) for frames in (RECOVERY, STEPPING))
    return Claim(
        "manifold",
        "The manifold of samples lowers E_kin by at least 30 % against the single mean in frames 100-150.",
        number,
        f"at least {LESS:g}",
        number >= LESS,
        f"{number:.0%} lower than the distance to the mode of the same frames, as the paper draws it; with the "
        f"mode alone {at_once:.2g} x the E_kin in the second after the push, and {alone:.2g} x in frames 100-150",
    )


def ablation(full: Arrays, ablated: Arrays, others: Mapping[str, Arrays]) -> Claim:
    """Judge what happens without contact and range of motion, also with other parts switched off."""
    kinematic, physics = (compared(ablated, full, name, END) for name in ("kinematic", "physics"))
    tried = []
    for name, label in (("literal", "without the ground's reaction"), ("uncorrected", "without the soft correction")):
        if f"{name}-ablated" in others:
            pair = others[f"{name}-ablated"], others[name]
            ratios = [f"x {compared(*pair, energy, END):.2g}" for energy in ("kinematic", "physics")]
            tried.append(f"{label} {' and '.join(ratios)}")
    depth = ablated["energy_contact"][:, END].mean(1)
    contact = f"contact energy at the end {depth.mean():.2g} m^2 on average and {np.median(depth):.2g} in the median"
    upright = [f"{arrays['upright'][:, -1].mean():.0%}" for arrays in (ablated, full)]
    text = (
        f"E_kin x {kinematic:.2g}, physics x {physics:.2g}, {contact}, upright at the end {' against '.join(upright)}"
    )
    return Claim(
        "ablation",
        "Without contact and range of motion the final kinematic and physics energies are at least 5 times higher.",
        min(kinematic, physics),
        f"at least {WORSE:g} x",
        min(kinematic, physics) >= WORSE,
        "; ".join((text, *tried)),
    )


def recorded_wrench(recorded: Sequence[Recorded] | None) -> Claim:
    """Judge the root wrench of recordings, and points against cylinders."""
    text = "The root wrench of recorded runs and jumps is not zero, and much the same with point masses and cylinders."
    bound = f"95th percentile at least {NOTICEABLE:g} body weights, and curves that correlate by {ALIKE:g}"
    if not recorded:
        return Claim("recorded-wrench", text, None, bound, None, "it needs recordings: give a folder with --recordings")
    sizes = {kind: [r for r in recorded if r.kind == kind] for kind in KINDS if any(r.kind == kind for r in recorded)}
    high = {kind: float(np.quantile(np.concatenate([r.points for r in of]), 0.95)) for kind, of in sizes.items()}
    alike = float(np.nanmedian([r.likeness for r in recorded]))
    parts = [f"{kind}: {high[kind]:.2f} in {len(of)} recordings" for kind, of in sizes.items()]
    number = min(high.values())
    finding = (
        f"95th percentile [body weights] of {', '.join(parts)}; median correlation of points and cylinders {alike:.3f}"
    )
    return Claim("recorded-wrench", text, number, bound, number >= NOTICEABLE and alike >= ALIKE, finding)


def corrected_wrench(runs: Arrays, recorded: Sequence[Recorded] | None) -> Claim:
    """Judge whether the soft correction brings the root wrench of pushed runs into the range of recordings."""
    text = "Soft correction brings the root wrench of a pushed run into the range of recorded motion."
    bound = "95th percentile after the correction at most 1 x the recorded runs'"
    frames = slice(DURING.start, STEPPING.stop)
    before, after = (float(np.quantile(runs[name][:, frames], 0.95)) for name in ("wrench_before", "wrench_after"))
    finding = f"95th percentile {before:.2f} before and {after:.2f} body weights after it, until 1 s after the push"
    recorded = [r for r in recorded or () if r.kind == "run"] or list(recorded or ())
    if not recorded:
        finding = f"{finding}; the range needs recordings: give a folder with --recordings"
        return Claim("corrected-wrench", text, None, bound, None, finding)
    high = float(np.quantile(np.concatenate([r.points for r in recorded]), 0.95))
    return Claim("corrected-wrench", text, after / high, bound, after <= high, f"{finding}; {high:.2f} recorded")


def speed_along(path: Arrays) -> tuple[float, float]:
    """Return the mean speed in the direction asked for, a while after each turn, and the speed asked for [m/s]."""
    wanted = path["wanted"][0]
    size = np.linalg.norm(wanted, axis=1)
    velocity = np.gradient(path["root"], 1 / FPS, axis=1)
    turned = np.concatenate(([True], (np.diff(wanted, axis=0) != 0).any(axis=1)))
    since = np.arange(len(wanted)) - np.maximum.accumulate(np.where(turned, np.arange(len(wanted)), 0))
    settled = (since >= SETTLE * FPS) & (size > 0)
    along = (velocity * (wanted / np.maximum(size, 1e-9)[:, None])).sum(-1)
    return float(along[:, settled].mean()), float(size[settled].mean())


def following(tables: Mapping[str, Arrays]) -> Claim:
    """Judge people who follow a path, by themselves and led by the hand."""
    worst, up, parts = 0.0, 1.0, list[str]()
    for name in FOLLOWS:
        speed, wanted = speed_along(tables[name])
        upright = float(tables[name]["upright"][:, -1].mean())
        gap = f", hand {np.median(tables[name]['hand_gap']):.2f} m off" if "hand_gap" in tables[name] else ""
        share = f"{upright:.0%} of {len(tables[name]['upright'])} upright"
        parts.append(f"{name} {speed:.2f} of {wanted:g} m/s, {share}{gap}")
        if "hand_gap" not in tables[name]:
            worst = max(worst, abs(speed / wanted - 1))
        up = min(up, upright)
    return Claim(
        "following",
        "People walk at 1.2 m/s and run at 2.5 m/s after a dot that turns every 4 s, and can be led by the hand.",
        worst,
        f"speeds of the followers off by at most {SPEED_ERROR:g}, and {LED_UPRIGHT:.0%} of all upright at the end",
        worst <= SPEED_ERROR and up >= LED_UPRIGHT,
        "; ".join(parts),
    )


def real_time(one: Row, many: Row) -> Claim:
    """Judge the speed of one person."""
    text = (
        f"{one.world_fps:.0f} frames a second of one person on one thread, {many.world_fps:.0f} in all of {many.people}"
    )
    return Claim(
        "speed", "Ten frames a second.", one.world_fps, f"at least {PAPER_FPS:g}", one.world_fps >= PAPER_FPS, text
    )


def judge(tables: Mapping[str, Arrays], recorded: Sequence[Recorded] | None, speed: Sequence[Row]) -> list[Claim]:
    """Return the verdicts on the eight results, and on the first hypothesis."""
    full = tables["full"]
    return [
        pushed_walk(tables["walk"]),
        back_to_level(full, tables["calm"], tables["longer"]),
        manifold(full, tables["mean"]),
        ablation(full, tables["ablated"], tables),
        recorded_wrench(recorded),
        corrected_wrench(tables["run"], recorded),
        following(tables),
        real_time(*speed),
        agreement(full, tables["calm"]),
    ]
