"""Beyond the paper: a search that starts where a learned policy would go, in open and in closed loop."""

from __future__ import annotations

from acid.evaluation.kits import Kit
from acid.tables import columns
from acid.tables.planning import MODELS, TASKS
from acid.tables.table import Claim, Column, Findings, Line, Study, Table
from acid.tables.verdict import Verdict, judge_gains

SIZES = {name: Kit.proposed[name] for name in ("samples", "iterations", "elites")}
TINY = {"samples": 10, "iterations": 3, "elites": 3}  # an episode takes 1/60 of Original's candidates
FEEDBACK = {
    name: Kit.proposed[name] for name in ("execute", "shrinks")
}  # look after every model step, plan as far as the goal is away
STD = {"std_init": Kit.proposed["std_init"]}  # how far the search may leave the proposal at first
PROPOSED = ("policy-open", "proposal", "proposal-acid")


def _studies() -> tuple[Study, ...]:
    found = []
    for model in MODELS:
        for task in TASKS:
            full = Study(task, model, ("original", "acid", "policy"))
            found += [
                full,
                Study(task, model, PROPOSED, SIZES, options=STD, against=full),
                Study(task, model, ("proposal", "proposal-acid"), SIZES | FEEDBACK, options=STD, against=full),
                Study(task, model, ("proposal-acid",), TINY | FEEDBACK, options=STD, against=full),
            ]
    return tuple(found)


def judge_original(findings: Findings) -> Verdict | None:
    """Whether the smallest closed-loop search beats Original in every cell."""
    return judge_gains(findings.gains("proposal-acid", "original", where=_is_tiny))


def judge_policy(findings: Findings) -> Verdict | None:
    """Whether it beats the policy in closed loop, which sees as much, in every cell."""
    return judge_gains(findings.gains("proposal-acid", "policy", where=_is_tiny), than="the policy")


def _is_tiny(study: Study) -> bool:
    return study.sizes == TINY | FEEDBACK


def looks_after(line: Line) -> str:
    """After how many model steps it looks again."""
    if line.condition == "policy":
        return "1"
    search = line.rows[0].search
    return "-" if search is None else str(search.execute or search.horizon)


def candidates_of(line: Line) -> float:
    """Of an episode on average."""
    search = line.rows[0].search
    return 0 if search is None else search.budget * sum(row.plans or 0 for row in line.rows) / line.n


LOOKS_AFTER = Column("looks after", looks_after)
CANDIDATES = Column("candidates", lambda line: f"{candidates_of(line):.0f}" if line.rows[0].search else "-")
SEARCHED = (columns.CONDITION, LOOKS_AFTER, columns.LAMBDA, CANDIDATES, columns.N)  # how a line was planned


PROPOSALS = Table(
    name="proposals",
    title="Searches that start where a policy would go, in open and in closed loop",
    studies=_studies(),
    episodes=200,
    columns=(
        columns.MODEL,
        columns.TASK,
        columns.CONDITION,
        columns.LAMBDA,
        LOOKS_AFTER,
        CANDIDATES,
        columns.N,
        *columns.SUCCESS,
    ),
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim(
            "Searches from a policy's proposal, in closed loop, beat Original at 1/60 of its candidates.",
            judge_original,
            published=False,
        ),
        Claim("Such searches beat the policy alone, which looks as often.", judge_policy, published=False),
    ),
    legend=(
        "looks after: model steps that are executed before the next decision. candidates: in an episode, on average.",
        "original, acid: CEM, N 300, J 30, K 30, in open loop, as published. policy: the goal-conditioned policy",
        "without a world model, in closed loop. policy-open: the same rolled out in imagination, without a search.",
        "proposal: policy-open refined by CEM with a first standard deviation of 0.3, N 30, J 5, K 5; in the last line",
        "of each cell N 10, J 3, K 3. proposal-acid: under ACID's cost, with the λ that was chosen for ACID.",
        "In closed loop plans become shorter as the goal comes nearer. Plans that always aim five steps ahead were",
        "tried on 80 episodes that are not reported (Le-WM, Push-T): 10 %, because they never arrive.",
        "n paired held-out episodes; 95 % intervals, McNemar test.",
    ),
)
