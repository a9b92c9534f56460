"""The paper's eight results as verdicts: what it says, what we measure, and whether that agrees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.physics.options import SimulatorOptions
from dropsim.research.evaluation.bench import Speed
from dropsim.research.evaluation.chunks import Arrays
from dropsim.research.evaluation.paper.plan import FOLLOWS, PUSHED
from dropsim.research.evaluation.recordings import KINDS, Recorded

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
    """One result of the paper and what became of it here."""

    id: str
    claim: str
    """What the paper says."""
    number: float | None
    """The number that is compared with the bound; None if it was not run."""
    bound: str
    reproduced: bool | None
    """None if it was not run."""
    finding: str
    """What was measured, in a sentence."""

    @property
    def verdict(self) -> str:
        return "not run" if self.reproduced is None else "reproduced" if self.reproduced else "not reproduced"

    @property
    def line(self) -> str:
        number = "" if self.number is None else f" {self.number:.3g} ({self.bound});"
        return f"{self.id}: {self.verdict}:{number} {self.finding}"


def median(arrays: Arrays, name: str, frames: slice) -> float:
    """Return the median over people of an energy in each frame, and of that the mean over some frames [m^2]."""
    return float(np.median(arrays[f"energy_{name}"], axis=0)[frames].mean())


def ratio(value: float, to: float) -> float:
    """Return one energy over another; 0 over 0 is 1."""
    return 1.0 if value == to == 0 else value / to if to > 0 else float("inf")


def shown_walk(walks: Arrays) -> int:
    """Return the first walk that stays on its feet, or the first if none does."""
    stays = ~walks["fallen"].any(axis=1)
    return int(stays.argmax())


def pushed_walk(walks: Arrays) -> Claim:
    """Judge the energies of pushed walks: the medians over those that stay on their feet, so that no single one decides."""
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
    end = float(
        np.median(
            np.median(kinematic[:, END], axis=1) / np.maximum(np.quantile(kinematic[:, BEFORE], 0.95, axis=1), TINY)
        )
    )
    return Claim(
        "pushed-walk",
        "Of a pushed walk the range-of-motion and momentum energies rise at the push, E_kin stays high while stepping, all return.",
        end,
        f"E_kin at the end at most 1 x its 95th percentile before the push, and momentum, pose and stepping E_kin up by {RISE:g}",
        end <= 1.0 and min(momentum, stepping) >= RISE and pose > RISE * pose_before,
        f"momentum x {momentum:.1f} in the push, range of motion from {pose_before:.2g} to {pose:.2g} m^2, E_kin x {stepping:.0f} in the "
        f"second after it; medians of {len(chosen)} walks, {len(up)} of {len(walks['fallen'])} stay on their feet; walk "
        f"{shown_walk(walks) + 1} is drawn",
    )


def agreement(full: Arrays, calm: Arrays) -> Claim:
    """Judge the paper's first hypothesis: in ordinary motion the prior agrees with physics."""
    ordinary, peak = (
        median(calm, "kinematic", slice(BEFORE.start, None)),
        float(np.median(full["energy_kinematic"], axis=0).max()),
    )
    # E = w / 2 times the sum of squares over the joints.
    distance = 1000 * (2 * ordinary / (SimulatorOptions().kinematic_weight * NUM_JOINTS)) ** 0.5
    number = ratio(ordinary, peak)
    return Claim(
        "agreement",
        "In ordinary motion the kinematic energy agrees with the others.",
        number,
        f"unpushed at most {AGREES:g} x its peak under a push",
        number <= AGREES,
        f"median E_kin of unpushed people {ordinary:.2g} m^2, joints {distance:.1f} mm from the nearest candidate (root mean square); "
        f"{peak:.2g} m^2 at the peak of the pushed",
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
    back = float(
        (
            full["energy_kinematic"][:, END].mean(1) <= np.quantile(calm["energy_kinematic"][:, BEFORE.start :], 0.95)
        ).mean()
    )
    lost, frames = int((~full["finished"]).sum()), full["energy_kinematic"].shape[1]
    return Claim(
        "back-to-level",
        "The median E_kin of 250 pushed motions falls back to its unperturbed level by the end.",
        number,
        f"at most {BACK:g} x the level before the push",
        number <= BACK,
        f"median E_kin {level:.2g} m^2 before the push, {peak:.2g} at its peak, {median(longer, 'kinematic', END):.2g} in the last of "
        f"{longer['energy_kinematic'].shape[1] / FPS:.0f} s, {when}; after {frames / FPS:.0f} s {twins:.2g} x that of the same people "
        f"unpushed, {back:.0%} within their 95th percentile and {full['upright'][:, -1].mean():.0%} upright; "
        f"{len(full['finished'])} motions, {lost} diverged",
    )


def manifold(full: Arrays, mean: Arrays) -> Claim:
    """Judge the manifold of K samples against the prior's mode alone."""
    with_k = median(full, "kinematic", RECOVERY)
    number = 1 - ratio(with_k, median(full, "kinematic_mode", RECOVERY))
    alone, at_once = (
        ratio(median(mean, "kinematic", frames), median(full, "kinematic", frames)) for frames in (RECOVERY, STEPPING)
    )
    return Claim(
        "manifold",
        "The manifold of samples lowers E_kin by at least 30 % against the single mean in frames 100-150.",
        number,
        f"at least {LESS:g}",
        number >= LESS,
        f"{number:.0%} lower than the distance to the mode of the same frames, as the paper draws it; "
        f"runs that have the mode alone have {at_once:.2g} x the E_kin in the second after the push, and {alone:.2g} x in frames 100-150",
    )


def ablation(full: Arrays, ablated: Arrays, others: Mapping[str, Arrays]) -> Claim:
    """Judge what happens without contact and range of motion, also with other parts switched off."""
    kinematic, physics = (
        ratio(median(ablated, name, END), median(full, name, END)) for name in ("kinematic", "physics")
    )
    tried = [
        f"{label} x {ratio(median(others[f'{name}-ablated'], 'kinematic', END), median(others[name], 'kinematic', END)):.2g} and "
        f"x {ratio(median(others[f'{name}-ablated'], 'physics', END), median(others[name], 'physics', END)):.2g}"
        for name, label in (
            ("literal", "without the ground's reaction"),
            ("uncorrected", "without the soft correction"),
        )
        if f"{name}-ablated" in others
    ]
    depth = ablated["energy_contact"][:, END].mean(1)
    contact = f"contact energy at the end {depth.mean():.2g} m^2 on average and {np.median(depth):.2g} in the median"
    return Claim(
        "ablation",
        "Without contact and range-of-motion energies the final kinematic and physics energies are at least 5 times higher.",
        min(kinematic, physics),
        f"at least {WORSE:g} x",
        min(kinematic, physics) >= WORSE,
        f"E_kin x {kinematic:.2g}, physics x {physics:.2g}, {contact}, upright at the end {ablated['upright'][:, -1].mean():.0%} against "
        f"{full['upright'][:, -1].mean():.0%}" + (f"; {', '.join(tried)}" if tried else ""),
    )


def recorded_wrench(recorded: Sequence[Recorded] | None) -> Claim:
    """Judge the root wrench of recordings, and points against cylinders."""
    text = "The root wrench of recorded running and jumping is not zero, and masses at the joints give much the same as cylinders."
    bound = f"95th percentile at least {NOTICEABLE:g} body weights, and curves that correlate by {ALIKE:g}"
    if not recorded:
        return Claim("recorded-wrench", text, None, bound, None, "it needs recordings: give a folder with --recordings")
    sizes = {kind: [r for r in recorded if r.kind == kind] for kind in KINDS if any(r.kind == kind for r in recorded)}
    high = {kind: float(np.quantile(np.concatenate([r.points for r in of]), 0.95)) for kind, of in sizes.items()}
    alike = float(np.nanmedian([r.likeness for r in recorded]))
    parts = [f"{kind}: {high[kind]:.2f} in {len(of)} recordings" for kind, of in sizes.items()]
    number = min(high.values())
    return Claim(
        "recorded-wrench", text, number, bound, number >= NOTICEABLE and alike >= ALIKE,
        f"95th percentile [body weights] of {', '.join(parts)}; median correlation of points and cylinders {alike:.3f}",
    )  # fmt: skip


def corrected_wrench(runs: Arrays, recorded: Sequence[Recorded] | None) -> Claim:
    """Judge whether the soft correction brings the root wrench of pushed runs into the range of recordings."""
    text = "Soft correction brings the root wrench of a pushed run into the range of recorded motion."
    bound = "95th percentile after the correction at most 1 x the recorded runs'"
    frames = slice(DURING.start, STEPPING.stop)
    before, after = (float(np.quantile(runs[name][:, frames], 0.95)) for name in ("wrench_before", "wrench_after"))
    finding = f"95th percentile {before:.2f} before and {after:.2f} body weights after the correction, from the push to a second after it"
    recorded = [r for r in recorded or () if r.kind == "run"] or list(recorded or ())
    if not recorded:
        return Claim(
            "corrected-wrench",
            text,
            None,
            bound,
            None,
            f"{finding}; the range needs recordings: give a folder with --recordings",
        )
    high = float(np.quantile(np.concatenate([r.points for r in recorded]), 0.95))
    return Claim("corrected-wrench", text, after / high, bound, after <= high, f"{finding}; {high:.2f} recorded")


def speed_along(found: Arrays) -> tuple[float, float]:
    """Return the mean speed in the direction asked for, a while after each turn, and the speed asked for [m/s]."""
    wanted = found["wanted"]
    size = np.linalg.norm(wanted, axis=1)
    velocity = np.gradient(found["root"], 1 / FPS, axis=1)
    turned = np.concatenate(([True], (np.diff(wanted, axis=0) != 0).any(axis=1)))
    since = np.arange(len(wanted)) - np.maximum.accumulate(np.where(turned, np.arange(len(wanted)), 0))
    settled = (since >= SETTLE * FPS) & (size > 0)
    along = (velocity * (wanted / np.maximum(size, 1e-9)[:, None])).sum(-1)
    return float(along[:, settled].mean()), float(size[settled].mean())


def following(found: Mapping[str, Arrays]) -> Claim:
    """Judge people who follow a path, by themselves and led by the hand."""
    worst, up, parts = 0.0, 1.0, list[str]()
    for name in FOLLOWS:
        speed, wanted = speed_along(found[name])
        upright = float(found[name]["upright"][:, -1].mean())
        gap = f", hand {np.median(found[name]['hand_gap']):.2f} m off" if "hand_gap" in found[name] else ""
        parts.append(
            f"{name} {speed:.2f} of {wanted:g} m/s, {upright:.0%} of {len(found[name]['upright'])} upright{gap}"
        )
        if "hand_gap" not in found[name]:
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


def real_time(speed: Speed) -> Claim:
    """Judge the speed of one person."""
    return Claim(
        "speed",
        "Ten frames a second.",
        speed.frames_per_second,
        f"at least {PAPER_FPS:g}",
        speed.frames_per_second >= PAPER_FPS,
        f"{speed.frames_per_second:.0f} frames a second of one person on one thread, {speed.batch_frames_per_second:.0f} in all of "
        f"a batch of {speed.batch}, where sgemm reaches {speed.gflops:.0f} GFLOPS",
    )


def judge(found: Mapping[str, Arrays], recorded: Sequence[Recorded] | None, speed: Speed) -> list[Claim]:
    """Return the verdicts on the eight results, and on the first hypothesis."""
    full = found["full"]
    return [
        pushed_walk(found["walk"]),
        back_to_level(full, found["calm"], found["longer"]),
        manifold(full, found["mean"]),
        ablation(full, found["ablated"], found),
        recorded_wrench(recorded),
        corrected_wrench(found["run"], recorded),
        following(found),
        real_time(speed),
        agreement(full, found["calm"]),
    ]
