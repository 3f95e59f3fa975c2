"""Claims of the paper that none of its tables shows: Euler steps, limits, other verifiers, one λ for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from acid.evaluation import BASELINE, Paired, paired
from acid.evaluation.results import values_of
from acid.evaluation.table import difference, interval, p_value
from acid.tables import columns, deformable, shapes
from acid.tables.names import called_cell
from acid.tables.table import Choice, Claim, Column, Findings, Line, Study, Table
from acid.tables.verdict import Verdict, complete, judge_gains, told

HARDLY = 0.05  # a share of success: "without measurable degradation"
CELLS = (("reacher", "lewm"), ("reacher", "pldm"), ("cube", "lewm"))
SWAPPED = tuple((task, model) for task in ("cube", "pusht", "reacher") for model in ("lewm", "pldm"))
SWAPPED += tuple((task, f"{usual}-shapes") for task, usual in shapes.CELLS if task not in shapes.FEWER)
EULER = ("acid-2-steps", "acid-5-steps", "acid-10-steps", "acid-noise", "acid-noise-10-steps")
SMALL = {"samples": 100, "iterations": 10, "elites": 10}  # ten Euler steps cost ten times as much
TRANSFER = Choice({"acid": (0.3, 1.0, 3.0)}, 40, shared=True)


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


def gain_of(name: str, other: str, than: str = "Original") -> Callable[[Findings], Verdict | None]:
    """A judge of whether one condition gains on another in every cell that has both."""
    return lambda findings: judge_gains(findings.gains(name, other), than=than)


def judge_one_step(findings: Findings) -> Verdict | None:
    """One Euler step suffices if no other way of asking is better by more than a few points."""
    others = complete({
        f"{name.removeprefix('acid-')}, {where}": gain
        for name in EULER
        for where, gain in findings.gains(name, "acid").items()
    })  # fmt: skip
    return None if others is None else _suffices(others)


def _suffices(others: Mapping[str, Paired]) -> Verdict:
    numbers = f"Others less one step from zero, points of success: {told(others, share=True)}."
    limit = f"{100 * HARDLY:g} points"
    better = [name for name, one in others.items() if one.low > 0]
    unclear = [name for name, one in others.items() if one.high >= HARDLY]
    if better:
        return Verdict("contradicted", f"{'; '.join(better)}: better than one step for certain.", numbers)
    if unclear:
        n = min(one.n for one in others.values())
        told_ = f"{len(unclear)} of {len(others)} others may still be {limit} better or more"
        return Verdict(
            "not confirmed",
            f"No other way is better for certain, but {told_}: {n} episodes are too few to tell.",
            numbers,
        )
    return Verdict("confirmed", f"None of {len(others)} other ways is {limit} better.", numbers)


def judge_transfer(findings: Findings) -> Verdict | None:
    return judge_gains(findings.gains("acid", BASELINE, "chamfer"), lower_is_better=True, unit=deformable.UNIT)


def judge_swapped(findings: Findings) -> Verdict | None:
    """Whether ACID still gains with a borrowed verifier, wherever there is one that fits."""
    return judge_gains(findings.gains("acid-swapped", BASELINE, where=lambda study: study in findings.studies))


def borrowed_against_own(findings: Findings) -> list[str]:
    """Over all cells that have both, in one line."""
    cells = [s for s in findings.studies if findings.rows(s, "acid-swapped") and findings.rows(s, "acid")]
    if not cells:
        return []
    found = findings.gain_over(((cell, "acid-swapped"), (cell, "acid")) for cell in cells)
    assert found is not None
    told_ = f"{difference(found, share=True)}, p {p_value(found)}"
    return [f"A borrowed verifier less the cell's own, {len(cells)} cells, {found.n} problems: {told_}"]


def judge_own(findings: Findings) -> Verdict | None:
    """Whether a cell's own verifier does better than a borrowed one."""
    found = findings.gains("acid", "acid-swapped", where=lambda study: study in findings.studies)
    return judge_gains(found, than="the borrowed verifier")


def judge_weakens(findings: Findings) -> Verdict | None:
    """Whether the gain under a disturbance is smaller than the gain without, on the same episodes."""
    lost: dict[str, Paired] = {}
    for study in findings.studies:
        disturbance = study.baseline.removeprefix(f"{BASELINE}-")
        plain = replace(study, conditions=(BASELINE, "acid"), baseline=BASELINE)
        ours, without = (_gain_of_each(findings, one) for one in (study, plain))
        if not (ours.keys() & without.keys()):
            return None
        lost[f"{called_cell(study)} {disturbance}"] = paired(ours, without)
    return _weakens(lost) if lost else None


def _weakens(lost: Mapping[str, Paired]) -> Verdict:
    weaker = [name for name, one in lost.items() if one.high < 0]
    stronger = [name for name, one in lost.items() if one.low > 0]
    kind = "contradicted" if stronger else "confirmed" if len(weaker) == len(lost) else "not confirmed"
    smaller = sum(one.difference < 0 for one in lost.values())
    reason = f"By the mean ACID gains less than without the disturbance in {smaller} of {len(lost)} cases, for certain "
    reason += f"in {len(weaker)}."
    if stronger:
        reason += f" It gains more for certain with {' and '.join(stronger)}."
    elif kind == "not confirmed":
        reason += f" {min(one.n for one in lost.values())} episodes are too few to tell the rest."
    return Verdict(
        kind, reason, f"ACID's gain under the disturbance less that without, points: {told(lost, share=True)}."
    )


def _gain_of_each(findings: Findings, study: Study) -> dict[Hashable, float]:
    """ACID's success less the baseline's on each episode."""
    theirs, mine = (values_of(findings.rows(study, name), "success") for name in study.conditions)
    return {pair: mine[pair] - theirs[pair] for pair in mine.keys() & theirs.keys()}


EULER_TABLE = Table(
    name="euler",
    title="A single Euler step suffices: planning with 1, 2, 5 and 10, and from zero or random noise",
    studies=tuple(Study(task, model, (BASELINE, "acid", *EULER), SMALL) for task, model in CELLS),
    episodes=100,
    columns=COLUMNS,
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim(
            '"A single Euler step suffices in our experiments without measurable degradation."',
            judge_one_step,
            paper="stated without numbers; its navigation uses ten steps.",
        ),
    ),
    legend=(
        "acid: one Euler step from zero, which gives the mean action of a transition. N-steps: N of them; noise: from",
        "random noise instead of zero, so that many steps sample an action. All with the λ that was chosen for acid.",
        f"suffices: no other way is better by {100 * HARDLY:g} points or more, by its whole interval. N 100, J 10.",
    ),
)

LIMITS = Table(
    name="limits",
    title="Limitations: observations with a hidden part, and actions that are not all that acts",
    studies=tuple(
        Study(task, model, (f"original-{name}", f"acid-{name}"), SMALL, baseline=f"original-{name}")
        for name in ("masked", "pushed")
        for task, model in CELLS
    ),
    episodes=200,
    columns=COLUMNS,
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim('Under partial observability or interventions from outside, what ACID relies on "weakens."',
              judge_weakens, paper="stated as a limitation, not measured."),
        Claim("ACID still gains when a part of what is seen is hidden (the paper expects this to weaken it).",
              gain_of("acid-masked", "original-masked", "Original, equally disturbed,"), published=False),
        Claim("ACID still gains when something else acts too (the paper expects this to weaken it).",
              gain_of("acid-pushed", "original-pushed", "Original, equally disturbed,"), published=False),
    ),
    legend=(
        "masked: the agent sees its own frames with a grey square of half their side, at a place of its own in each",
        "plan; the goal is shown whole. pushed: the first model step of every plan is executed with random actions.",
        "The baseline is Original under the same disturbance. N 100, J 10.",
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
        Claim(
            'The verifier "remains valid when the world model is later swapped."',
            judge_swapped,
            paper="stated without an experiment.",
        ),
        Claim("A cell's own verifier does better than a borrowed one.", judge_own, published=False),
    ),
    after=borrowed_against_own,
    legend=(
        "acid-swapped: ACID with a verifier that was fitted to another world model. A model with shapes borrows from",
        "the usual one: the same world model on the same data, trained again with channels of another kind. Le-WM and",
        "PLDM borrow from each other, which is a harder test. Reacher is left out: latents of its two models differ in",
        "size. With --folder a cell of your own borrows from the shipped one with the same world model. Where models",
        "share a frozen encoder, as DINO-WM's do, a verifier fits all of them.",
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
    claims=(
        Claim(
            '"A single λ per world model transfers across tasks without per-task retuning."',
            judge_transfer,
            paper="stated; its tables do not say which λ DINO-WM had.",
        ),
    ),
    legend=(
        f"λ is chosen once for both tasks on {TRANSFER.episodes} other problems each: the one with the lowest",
        "geometric mean of the two final Chamfer distances. Le-WM and PLDM always have one λ for all their tasks.",
    ),
)
