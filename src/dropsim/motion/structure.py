"""People found in a rig by its structure: two pairs of like chains, legs and arms, on the two ends of a spine."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import dot, normalize
from dropsim.motion.bvh import Rig

LIKE = 0.1
"""Bones of the two sides differ by less than this share of their chain."""
LEG, ARM = (1.0, 0.35), (1.2, 0.33)
"""Ratios of a leg and an arm: upper over lower bone, and foot or hand over both (Drillis & Contini 1966, Winter)."""
ARMS = (0.3, 2.0)
"""Shortest and longest arms of a person, over the legs; two fingers are shorter."""
NECK = 0.2
"""Length of a long neck up to the head's joint, over the legs with their feet."""
FEWEST = 3
"""Joints of a leg or an arm."""
MOST = 12
"""Joints of a chain that are looked at: a leg with toes, an arm with a finger."""
BENDING = 0.05
"""A joint that bends less than this over all poses [rad] is no knee and no elbow, if another bends."""
MOST_PAIRS = 40
"""Chains on one joint, and pairs of like ones, that are looked at, the longest; fingers and hair are shorter."""
SURE = 0.3
"""Cosine that tells left from right: of the hips' line with the line to the left of spine and toes."""

_LEFT = re.compile(r"(?i:left)|左|(?:^|[^A-Za-z])[lL](?:$|[^A-Za-z])|(?:^|[_.: ])l(?=[A-Z])|^L(?=[A-Z][a-z])")
_RIGHT = re.compile(r"(?i:right)|右|(?:^|[^A-Za-z])[rR](?:$|[^A-Za-z])|(?:^|[_.: ])r(?=[A-Z])|^R(?=[A-Z][a-z])")


def side_in_name(name: str) -> str:
    """Return left, right, or nothing where a joint's name does not say."""
    left, right = bool(_LEFT.search(name)), bool(_RIGHT.search(name))
    return "" if left == right else "left" if left else "right"


def is_end(name: str) -> bool:
    """Tell the tip of a bone, which nothing turns: an End Site, 3ds Max's Nub, Mixamo's HeadTop_End."""
    return name.lower().endswith(("_end", "nub"))


@dataclass(frozen=True)
class _Limbs:
    """Two like chains on one joint."""

    parent: int
    chains: tuple[list[int], list[int]]
    length: float
    """Length of one, in the file's unit."""


def _walk(joint: int, following: Sequence[int]) -> list[int]:
    """Return a joint and those that follow it, up to the end at -1."""
    line = [joint]
    while following[line[-1]] >= 0:
        line.append(following[line[-1]])
    return line


class _Tree:
    """A rig's joints with the longest chain below each."""

    def __init__(self, rig: Rig, offsets: Float[np.ndarray, "n 3"], poses: Float[np.ndarray, "t n 3"]) -> None:
        self.rig, self.lengths = rig, np.linalg.norm(offsets, axis=-1)
        self.children: list[list[int]] = [[] for _ in rig.names]
        for j, parent in enumerate(rig.parents):
            if parent >= 0:
                self.children[parent].append(j)
        self.reach = np.zeros(len(rig.names))
        """Along the bones to the farthest joint below."""
        self.next = [-1] * len(rig.names)
        """Child on the way to that joint; -1 at the end."""
        for j in reversed(range(len(rig.names))):
            if below := self.children[j]:
                self.next[j] = max(below, key=lambda c: self.lengths[c] + self.reach[c])
                self.reach[j] = self.lengths[self.next[j]] + self.reach[self.next[j]]
        self.bends = [self._bends(j, poses) for j in range(len(rig.names))]

    def _bends(self, joint: int, poses: Float[np.ndarray, "t n 3"]) -> bool:
        """Tell whether the angle between the bones that meet in a joint changes from pose to pose."""
        parent, child = self.rig.parents[joint], self.next[joint]
        if min(parent, child) < 0:
            return True
        come, go = poses[:, joint] - poses[:, parent], poses[:, child] - poses[:, joint]
        angles = np.arccos(np.clip(dot(normalize(come), normalize(go)), -1, 1))
        return bool(np.ptp(angles) > BENDING)

    def chain(self, joint: int) -> list[int]:
        """Return the joints from one to the farthest below."""
        return _walk(joint, self.next)

    def above(self, joint: int) -> list[int]:
        """Return a joint and those above it."""
        return _walk(joint, self.rig.parents)

    def pairs(self, *, one_hand_may_hold_something: bool = False) -> list[_Limbs]:
        """Return all pairs of like chains, the longest first; with something in one hand, alike as far as the hand."""
        pairs = []
        for parent, below in enumerate(self.children):
            longest = sorted(below, key=lambda c: -self.reach[c])[:MOST_PAIRS] if len(below) > 1 else []
            chains_below = {c: self.chain(c) for c in longest}
            for a, b in itertools.combinations([c for c in below if len(chains_below.get(c, ())) >= FEWEST], 2):
                chains = chains_below[a], chains_below[b]
                size = (min if one_hand_may_hold_something else max)(self.reach[a], self.reach[b])
                lengths = [[*self.lengths[chain][1:], 0.0, 0.0] for chain in chains]
                like = [abs(x - y) < LIKE * size for x, y in zip(*lengths, strict=False)]
                alike = (like.index(False) if False in like else min(map(len, chains)) - 1) + 1
                if one_hand_may_hold_something:
                    chains, size = (chains[0][:alike], chains[1][:alike]), sum(lengths[0][: alike - 1])
                if size > 0 and alike >= FEWEST and (all(like) or one_hand_may_hold_something):
                    pairs.append(_Limbs(parent, chains, float(size)))
        return sorted(pairs, key=lambda pair: -pair.length)

    def limb(self, pair: _Limbs, build: tuple[float, float]) -> tuple[int, int, int]:
        """Return the places of hips, knees and ankles, or of shoulders, elbows and wrists, in a chain."""
        chain = min(pair.chains, key=len)
        means = np.mean([self.lengths[line[: len(chain)]] for line in pair.chains], axis=0)
        along = np.concatenate(([0.0], np.cumsum(means[1:])))
        ratio, tip = build

        def oddness(at: tuple[int, int, int]) -> float:
            upper, lower, rest = along[at[1]] - along[at[0]], along[at[2]] - along[at[1]], along[-1] - along[at[2]]
            if min(upper, lower) <= 0:
                return np.inf
            # A hand without fingers has no length of its own.
            end = abs(np.log(rest / (tip * (upper + lower)))) if rest > 0.05 * (upper + lower) else 1.0
            # A collar bone or a hip bone is shorter than the limb; a finger is not a limb.
            start = max(0.0, along[at[0]] / (upper + lower) - 0.5)
            # Fingers begin at a hand; a twist joint inside a bone does not bend.
            palm = 0.0 if len(self.children[chain[at[2]]]) > 1 else 0.2
            stiff = 2 * (not self.bends[chain[at[1]]])
            return abs(np.log(upper / lower / ratio)) + 0.6 * end + 4 * start + palm + stiff

        joints = [k for k, j in enumerate(chain[:MOST]) if not is_end(self.rig.names[j])]
        return min(itertools.combinations(joints if len(joints) >= FEWEST else range(len(chain)), 3), key=oddness)


def find_person(
    rig: Rig, offsets: Float[np.ndarray, "n 3"], poses: Float[np.ndarray, "t n 3"]
) -> tuple[dict[str, int], str] | None:
    """Return our joints in a rig and what tells left from right: names, the pose, or nothing.

    None where the rig has no two pairs of like chains. Legs and arms are the longest pairs such that the arms hang on a
    joint that is neither above the legs nor on one of them.
    """
    tree = _Tree(rig, offsets, poses)
    fits = list[tuple[_Limbs, _Limbs]]()
    for pairs in (tree.pairs(one_hand_may_hold_something=True), tree.pairs()):
        people = [pair for pair in itertools.permutations(pairs[:MOST_PAIRS], 2) if _is_person(tree, *pair)]
        fits += [max(people, key=lambda fit: (fit[0].length + fit[1].length, fit[0].length))] if people else []
    if not fits:
        return None
    # Limbs that are alike to their ends, unless these are fingers and a hand holds something.
    holding, alike = fits[0], fits[-1]
    legs, arms = holding if holding[0].length > 2 * alike[0].length else alike
    joints: dict[str, int] = {"pelvis": legs.parent}
    order, sides_from = _sides(tree, legs, arms, poses)
    hip, knee, ankle = tree.limb(legs, LEG)
    shoulder, elbow, wrist = tree.limb(arms, ARM)
    for k, side in enumerate(("left", "right")):
        leg, arm = legs.chains[order[0][k]], arms.chains[order[1][k]]
        joints |= {f"{side}_hip": leg[hip], f"{side}_knee": leg[knee], f"{side}_ankle": leg[ankle]}
        if ankle + 1 < len(leg):
            joints[f"{side}_foot"] = leg[ankle + 1]
        joints |= {f"{side}_shoulder": arm[shoulder], f"{side}_elbow": arm[elbow], f"{side}_wrist": arm[wrist]}
        if shoulder:
            joints[f"{side}_collar"] = arm[0]
    joints |= _spine(tree, legs.parent, arms) | _head(tree, arms, NECK * legs.length)
    return joints, sides_from


def _is_person(tree: _Tree, legs: _Limbs, arms: _Limbs) -> bool:
    over = tree.above(arms.parent)
    if not ARMS[0] < arms.length / legs.length < ARMS[1]:
        return False
    return arms.parent not in tree.above(legs.parent) and not any(chain[0] in over for chain in legs.chains)


def _spine(tree: _Tree, pelvis: int, arms: _Limbs) -> dict[str, int]:
    common = set(tree.above(pelvis))
    spine = [j for j in reversed(tree.above(arms.parent)) if j not in common]
    if not spine:
        return {}
    named = {"spine3": spine[-1]}
    if len(spine) > 1:
        named["spine1"] = spine[0]
    if len(spine) > 2:
        named["spine2"] = spine[len(spine) // 2]
    return named


def _head(tree: _Tree, arms: _Limbs, length: float) -> dict[str, int]:
    """Return neck and head: on the chain that leaves the chest besides the arms, at most a length apart."""
    limbs = {chain[0] for chain in arms.chains}
    others = [c for c in tree.children[arms.parent] if c not in limbs and tree.children[c]]
    called = [c for c in others if re.search("neck|head|首|頭", tree.rig.names[c].lower())]
    if not (called or others):
        return {}
    chain = tree.chain(max(called or others, key=lambda c: tree.reach[c]))
    joints = [j for j in chain if not is_end(tree.rig.names[j])] or chain[:1]
    # Eyes, jaw and hair hang on the head; a hat is farther away than a neck is long.
    near = [j for j, far in zip(joints[2:3], np.cumsum(tree.lengths[joints[1:]])[1:2], strict=True) if far < length]
    head = next((j for j in joints[1:] if len(tree.children[j]) > 1), (near or joints[1:2] or joints)[0])
    return {"neck": joints[0], "head": head} if head != joints[0] else {"neck": joints[0]}


def _sides(
    tree: _Tree, legs: _Limbs, arms: _Limbs, poses: Float[np.ndarray, "t n 3"]
) -> tuple[tuple[tuple[int, int], tuple[int, int]], str]:
    """Return which leg and arm is the left one, as orders of each pair, and what told it."""
    orders, sources = [], []
    for pair in (legs, arms):
        named = [{side_in_name(tree.rig.names[j]) for j in chain} - {""} for chain in pair.chains]
        if named in ([{"left"}, {"right"}], [{"right"}, {"left"}]):
            orders.append((0, 1) if named[0] == {"left"} else (1, 0))
            sources.append("names")
            continue
        across = poses[:, pair.chains[0][0]] - poses[:, pair.chains[1][0]]
        deeper = poses[:, pair.chains[0][1]] - poses[:, pair.chains[1][1]]
        hip, knee, ankle = tree.limb(legs, LEG)
        toes = [poses[:, leg[-1]] - poses[:, leg[ankle]] for leg in legs.chains]
        bends = [2 * poses[:, leg[knee]] - poses[:, leg[hip]] - poses[:, leg[ankle]] for leg in legs.chains]
        front = np.sum(toes + bends, axis=0)
        leaning = leftness(across + deeper, poses[:, arms.parent] - poses[:, legs.parent], front)
        orders.append((0, 1) if leaning >= 0 else (1, 0))
        sources.append("the pose" if abs(leaning) > SURE else "nothing")
    return (orders[0], orders[1]), max(sources, key=("names", "the pose", "nothing").index)


def leftness(across: Float[np.ndarray, "t 3"], up: Float[np.ndarray, "t 3"], front: Float[np.ndarray, "t 3"]) -> float:
    """Return the mean cosine between a line across the body and the line to its left, up x front.

    The front is where toes point and knees bend; poses count by how much of it they show.
    """
    left = np.cross(normalize(up), front)
    return float((normalize(across) * left).sum() / max(np.linalg.norm(front, axis=-1).sum(), 1e-12))
