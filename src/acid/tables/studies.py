"""Sentences of the paper that no table of it shows, as studies: Euler steps, limits, other verifiers, one λ for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from acid.evaluation import BASELINE, Paired
from acid.evaluation.table import difference, interval, p_value
from acid.tables import columns, deformable
from acid.tables.table import Choice, Claim, Column, Findings, Line, Study, Table
from acid.tables.verdict import Verdict, on_gains, told

HARDLY = 0.05  # a share of success: "without measurable degradation"
CELLS = (("reacher", "lewm"), ("reacher", "pldm"), ("cube", "lewm"))
SWAPPED = (("cube", "lewm"), ("cube", "pldm"), ("pusht", "lewm"), ("pusht", "pldm"))  # whose latents have one size
EULER = ("acid-2-steps", "acid-5-steps", "acid-10-steps", "acid-noise", "acid-noise-10-steps")
TRANSFER = Choice({"acid": (0.3, 1.0, 3.0)}, 24, shared=True)  # as many problems as are shipped to choose on


def _share(line: Line) -> bool:
    return line.rows[0].metric == "success"


COLUMNS = (
    columns.MODEL,
    columns.TASK,
    columns.CONDITION,
    columns.LAMBDA,
    columns.N,
    Column(
        "result", lambda line: f"{line.rows[0].metric} {interval(line.mean(line.rows[0].metric), share=_share(line))}"
    ),
    Column("against the baseline", lambda line: difference(line.difference(line.rows[0].metric), share=_share(line))),
    Column("p", lambda line: p_value(line.difference(line.rows[0].metric))),
)


def _gains(findings: Findings, name: str, other: str, metric: str = "success") -> dict[str, Paired] | None:
    """One condition less another in every cell that has both; None while one is missing."""
    having = [s for s in findings.studies if {name, other} <= set(s.conditions)]
    found = {f"{s.model} {s.task}": findings.compare(s, name, other, metric) for s in having}
    gains = {where: one for where, one in found.items() if one is not None}
    return gains if gains and len(gains) == len(having) else None


def gain_of(name: str, other: str) -> Callable[[Findings], Verdict | None]:
    """A judge of whether one condition gains on another in every cell that has both."""

    def judge(findings: Findings) -> Verdict | None:
        gains = _gains(findings, name, other)
        return None if gains is None else on_gains(gains)

    return judge


def judge_one_step(findings: Findings) -> Verdict | None:
    """One Euler step suffices if no other way of asking is better by more than a few points."""
    found: dict[str, Paired] = {}
    for name in EULER:
        gains = _gains(findings, name, "acid")
        if gains is None:
            return None
        found |= {f"{name.removeprefix('acid-')}, {where}": one for where, one in gains.items()}
    return _suffices(found, f"others less one step from zero: {told(found, share=True)}.")


def _suffices(others: Mapping[str, Paired], reason: str) -> Verdict:
    if all(one.high < HARDLY for one in others.values()):
        return Verdict("confirmed", reason)
    return Verdict("contradicted" if any(one.low > 0 for one in others.values()) else "not confirmed", reason)


def judge_transfer(findings: Findings) -> Verdict | None:
    gains = _gains(findings, "acid", BASELINE, "chamfer")
    return None if gains is None else on_gains(gains, lower_is_better=True)


EULER_TABLE = Table(
    name="euler",
    title="A single Euler step suffices: planning with 1, 2, 5 and 10, and from zero or random noise",
    studies=tuple(Study(task, model, (BASELINE, "acid", *EULER)) for task, model in CELLS),
    episodes=100,
    columns=COLUMNS,
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim('"A single Euler step suffices in our experiments without measurable degradation."', judge_one_step),
    ),
    legend=(
        "acid: one Euler step from zero, which gives the mean action of a transition. N-steps: N of them; noise: from",
        "random noise instead of zero, so that many steps sample an action. All with the λ that was chosen for acid.",
        f"suffices: no other way is better by {100 * HARDLY:g} points or more, by its whole interval. N 300, J 30.",
    ),
)

LIMITS = Table(
    name="limits",
    title="Limitations: observations with a hidden part, and actions that are not all that acts",
    studies=tuple(
        Study(task, model, (f"original-{name}", f"acid-{name}"), baseline=f"original-{name}")
        for name in ("masked", "pushed")
        for task, model in CELLS
    ),
    episodes=100,
    columns=COLUMNS,
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim("ACID still gains when a part of what is seen is hidden (the paper expects this to weaken it).",
              gain_of("acid-masked", "original-masked"), published=False),
        Claim("ACID still gains when something else acts too (the paper expects this to weaken it).",
              gain_of("acid-pushed", "original-pushed"), published=False),
    ),
    legend=(
        "masked: the agent sees its own frames with a grey square of half their side, at a place of its own in each",
        "plan; the goal is shown whole. pushed: the first model step of every plan is executed with random actions.",
        "The baseline is Original under the same disturbance.",
    ),
)  # fmt: skip

SWAP = Table(
    name="swap",
    title="Limitations: the verifier of one world model used with another",
    studies=tuple(Study(task, model, (BASELINE, "acid", "acid-swapped")) for task, model in SWAPPED),
    episodes=100,
    columns=COLUMNS,
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim('The verifier "remains valid when the world model is later swapped."', gain_of("acid-swapped", BASELINE)),
    ),
    legend=(
        "acid-swapped: ACID with the verifier that was fitted to the task's other world model (of Le-WM and PLDM),",
        "whose encoder is another. Where models share a frozen encoder, as DINO-WM's do, a verifier fits all of them.",
    ),
)

ONE_LAMBDA = Table(
    name="transfer",
    title="One λ for both tasks of DINO-WM",
    studies=tuple(Study(task, deformable.MODEL, (BASELINE, "acid"), choice=TRANSFER) for task in deformable.TASKS),
    episodes=100,
    columns=COLUMNS,
    texts=3,
    metrics=("chamfer", "final_error"),
    claims=(Claim('"A single λ per world model transfers across tasks without per-task retuning."', judge_transfer),),
    legend=(
        f"λ is chosen once for both tasks on {TRANSFER.episodes} other problems each: the one with the lowest",
        "geometric mean of the two final Chamfer distances. Le-WM and PLDM always have one λ for all their tasks.",
    ),
)
