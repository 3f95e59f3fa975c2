"""A cell of a table: one task with one world model, its verifier and what else was trained for it.

What is shipped is read from the package and never written. What a user draws or chooses goes to the user's folder,
which is looked in first: the cell's own folder if it was named, else the folder of results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from acid import checkpoint, models, tasks
from acid.errors import AcidError, CheckpointError, DataError, did_you_mean
from acid.evaluation.agents import Situation
from acid.evaluation.conditions import CONDITIONS, Condition, measured, terms
from acid.evaluation.instances import load_instances, save_instances
from acid.evaluation.kits import Kit, kit_of
from acid.evaluation.pools import SharedPool
from acid.evaluation.protocol import Instances, Protocol, draw_instances
from acid.evaluation.provenance import Provenance
from acid.evaluation.searches import SearchSpec
from acid.files import check_name, read_json_object, write_text
from acid.planning import Cost, Observer, Planner, Proposal
from acid.verifier import Policy, Verifier

if TYPE_CHECKING:
    from acid.data import Episodes

ASSETS = Path(__file__).resolve().parent.parent / "assets"
RESULTS = Path("results")


@dataclass(frozen=True)
class Cell:
    """Where a cell's parts are: subfolders model, verifier, policy, decoder, readout. By default what is shipped.

    folder: a cell of the user's own. user: where instances and λ of a shipped cell are kept if the user makes new ones.
    """

    task: str = "reacher"
    model: str = "lewm"
    folder: Path | None = None
    user: Path = RESULTS

    def __post_init__(self) -> None:
        name = f"{self.task}/{self.model}"
        if self.folder is None and name not in shipped():
            raise AcidError(f"no weights are shipped for {name!r}; pass --folder{did_you_mean(name, shipped())}")
        check_name(self.model, "world model", AcidError)

    @property
    def task_class(self) -> type[tasks.Task]:
        return tasks.task_class(self.task)

    @property
    def root(self) -> Path:
        return ASSETS / self.task / self.model if self.folder is None else Path(self.folder)

    def has(self, part: str) -> bool:
        return (self.root / part).is_dir()

    def stored(self, part: str) -> checkpoint.Checkpoint:
        """A part's checkpoint, which must be of this task and model."""
        found = checkpoint.load(self.root / part)
        for name, wanted in (("task", self.task_class.name), ("model", self.model)):
            recorded = found.metadata.get(name, wanted)
            if recorded != wanted:
                raise CheckpointError(f"{self.root / part} was made for the {name} {recorded!r}, not for {wanted!r}")
        for below, recorded in found.built_on.items():
            if self.has(below) and checkpoint.fingerprint(self.root / below) != recorded:
                raise CheckpointError(f"{self.root / part} was trained on another {below} than the one beside it")
        return found

    def fingerprints(self, parts: Sequence[str]) -> dict[str, str]:
        return {part: checkpoint.fingerprint(self.root / part) for part in parts}

    def instances(self, protocol: Protocol, data: Path | None = None) -> Instances:
        """Drawn from a dataset if one is given, else drawn by the user before, else shipped.

        Only the published results keep starts that are solved already, so they are left out of the other splits.
        """
        if data is None:
            places = [folder / _instances_file(protocol) for folder in self._folders()]
            path = next((path for path in places if path.is_file()), places[0])
            found = load_instances(path, protocol, self.task_class.name)
        else:
            found = self._drawn(data, protocol)
        return found if protocol.split == "test" else Instances(found.unsolved)

    def draw(self, data: Path, protocol: Protocol) -> Instances:
        """Draw instances from the episodes that this cell's world model never saw, and keep them."""
        instances = self._drawn(data, protocol)
        save_instances(next(self._folders()) / _instances_file(protocol), instances, protocol, self.task_class.name)
        return instances

    def _drawn(self, data: Path, protocol: Protocol) -> Instances:
        from acid.data import Episodes

        episodes = Episodes(data, require=("action",))
        unseen = self._all_of(episodes) if protocol.split == "confirm" else self._held_out_of(episodes)
        return draw_instances(episodes, unseen, tasks.make(self.task), protocol)

    def _held_out_of(self, episodes: Episodes) -> Sequence[int]:
        """The episodes of the cell's own dataset that nothing was trained on."""
        from acid.data import partition

        recorded = self.stored("model").metadata.get("partition", {})
        parts = partition(episodes, held_out=recorded.get("held_out"), frameskip=recorded.get("frameskip"))
        if recorded:
            parts.check(recorded, str(self.root / "model"))
        return parts.held_out.tolist()

    def _all_of(self, episodes: Episodes) -> Sequence[int]:
        """Every episode of another dataset than the cell's own."""
        if may_share(self.stored("model").metadata, episodes):
            raise DataError(
                f"{episodes.path} may share episodes with what {self.root / 'model'} was trained on, as far as both "
                "tell where they are from; the split 'confirm' needs new ones, e.g. of "
                f"`acid collect {self.task} --seed 1 --out NEW.h5`"
            )
        return range(len(episodes))

    @property
    def lender(self) -> Cell | None:
        """Another cell of the task, whose verifier can take the place of this one's: its latents have the same sizes.

        That of a user's own cell is the shipped one with the same world model, trained another time, if it fits. That
        of a variant such as lewm-shapes is the usual one. Else it is the first other world model beside the cell.
        """
        return next(filter(self._can_borrow, self._others()), None)

    def _others(self) -> Iterator[Cell]:
        name = self.task_class.name
        if self.folder is not None and f"{name}/{self.model}" in shipped():
            yield Cell(name, self.model, user=self.user)
        usual = self.model.partition("-")[0]  # comes first, and other variants last
        for path in sorted(self.root.parent.glob("*"), key=lambda p: (p.name != usual, "-" in p.name, p.name)):
            if path.name != self.root.name and (path / "model").is_dir() and (path / "verifier").is_dir():
                yield Cell(self.task, path.name, self.folder and path, self.user)

    def _can_borrow(self, lender: Cell) -> bool:
        own, other = (checkpoint.load(cell.root / "verifier").config for cell in (self, lender))
        fits = all(own.get(name) == other.get(name) for name in ("latent_size", "tokens", "action_size"))
        return fits and self.fingerprints(["verifier"]) != lender.fingerprints(["verifier"])

    @property
    def lambdas(self) -> Mapping[str, float]:
        """The λ chosen so far, by condition."""
        for path in self._lambda_files():
            if path.is_file():
                return _read_lambdas(path)
        return {}

    def chosen_lambda(self, condition: Condition) -> float | None:
        """The λ chosen for a condition on episodes that are not reported; None for one without a weight."""
        if not condition.weighted:
            return None
        found = self.lambdas
        if condition.chosen_as not in found:
            self.stored("model")  # the folder of another task is told first
            where = f" --folder {self.folder}" if self.folder is not None else ""
            raise AcidError(
                f"no λ of {condition.chosen_as!r} was chosen for {self.root}: pass one, or choose it first by "
                f"`acid eval {self.task} --model {self.model}{where} --split select --lambdas 0.07 0.2 0.5`"
            )
        return found[condition.chosen_as]

    def choose_lambdas(self, lambdas: Mapping[str, float], reason: str) -> Path:
        """Remember which λ to plan with under each condition, and why."""
        path = next(self._lambda_files())
        content = {**self.lambdas, **lambdas, "reason": reason}
        write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return path

    def _folders(self) -> Iterator[Path]:
        """Where instances may be, the user's first."""
        if self.folder is not None:
            yield Path(self.folder)
        yield self.user / self.task_class.name
        yield ASSETS / self.task

    def _lambda_files(self) -> Iterator[Path]:
        """One λ serves a world model on all its tasks, unless the task or the user's folder has its own."""
        if self.folder is not None:
            yield Path(self.folder) / "lambda.json"
            return
        own = self.task_class.setup.own_lambda
        for root in (self.user, ASSETS):
            yield root / self.task / self.model / "lambda.json" if own else root / f"lambda-{self.model}.json"


class Bench:
    """A cell at work: its parts on one device, the search and the protocol. Everything is loaded once, when needed."""

    def __init__(
        self,
        cell: Cell,
        spec: SearchSpec,
        protocol: Protocol,
        *,
        device: str = "cpu",
        precision: str = "float32",
        compile: bool = False,
        pooled_with: Collection[str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """compile: let torch compile world model and verifier.

        pooled_with: conditions that share a pool if the search has one iteration; None: each plans by itself.

        observer: of every search that is not a choice from a pool.
        """
        self.cell = cell
        self.spec = spec
        self.protocol = protocol
        self._device = device
        self._precision = precision
        self._compile = compile
        self._pooled_with = pooled_with
        self._observer = observer
        self._pools: dict[bool, SharedPool] = {}  # by whether they start from a proposal

    @property
    def setup(self) -> tasks.Setup:
        return self.cell.task_class.setup

    @cached_property
    def task(self) -> tasks.Task:
        """For its action size and bounds; episodes are played in another one."""
        return tasks.make(self.cell.task)

    @cached_property
    def model(self) -> Any:
        self.cell.stored("model")
        model = models.load(self.cell.root / "model", device=self._device)
        if model.scaler.frameskip != self.task.frameskip:
            raise CheckpointError(
                f"{self.cell.root / 'model'} takes {model.scaler.frameskip} environment steps per model step, the task "
                f"{self.cell.task!r} {self.task.frameskip}"
            )
        size = self.task.action_size if not self.setup.judges_paths else model.scaler.env_size
        if model.scaler.env_size != size:
            raise CheckpointError(
                f"{self.cell.root / 'model'} was trained on actions of size {model.scaler.env_size}, "
                f"but the task {self.cell.task!r} takes {size}"
            )
        return self._compiled(model)

    @cached_property
    def kit(self) -> Kit:
        metadata = self.cell.stored("verifier").metadata
        verifier = self._compiled(Verifier.load(self.cell.root / "verifier", device=self._device))
        try:
            return kit_of(self.cell.model)(self.model, verifier, metadata)
        except CheckpointError as error:
            raise CheckpointError(f"{self.cell.root}: {error}") from error

    def _compiled(self, network: Any) -> Any:
        if self._compile:
            network.compile()
        return network

    @cached_property
    def policy(self) -> Policy:
        self.cell.stored("policy")
        return Policy.load(self.cell.root / "policy", device=self._device)

    @cached_property
    def readout(self) -> Callable[[Tensor], Tensor] | None:
        """From latents to the poses that they show, if the cell has a readout."""
        from acid.models.readout import Readout

        if not self.cell.has("readout"):
            return None
        self.cell.stored("readout")
        return Readout.load(self.cell.root / "readout", device=self._device)

    @cached_property
    def decoder(self) -> Callable[[Tensor], Tensor] | None:
        """Latents [..., P, D] to uint8 images [..., S, S, 3], if the cell or its model can draw them."""
        if self.cell.has("decoder"):
            self.cell.stored("decoder")
            return models.load_decoder(self.cell.root / "decoder", device=self._device).pixels
        if hasattr(self.model, "decode"):
            return lambda latents: (self.model.decode(latents) * 255).round().to(torch.uint8)
        return None

    @property
    def pooled(self) -> bool:
        """Whether agents choose from one pool of candidates."""
        return self._pooled_with is not None and self.spec.method == "cem" and self.spec.iterations == 1

    def shared_pool(self, condition: Condition) -> SharedPool:
        """Of all conditions that start their search where this one does."""
        if condition.proposes not in self._pools:
            planner = self._planner(condition, Cost([self.kit.goal()]))
            judged = terms(self.kit, self._pooled_with or ())
            self._pools[condition.proposes] = SharedPool(planner, judged, initial=partial(self.initial, condition))
        return self._pools[condition.proposes]

    def initial(self, condition: Condition, situation: Situation) -> Tensor | Proposal | None:
        """What a search starts from; None for what its planner starts from by itself."""
        usual = self.kit.initial(self.spec.candidates, situation)
        return self.kit.around(self.proposal, usual) if condition.proposes else usual

    @cached_property
    def proposal(self) -> Proposal:
        """How a search starts from the cell's policy."""
        return self.kit.proposal(self.policy, self.spec)

    def cost(self, condition: Condition, lam: float | None) -> Cost:
        """What a condition's search minimises. All report consistency; only ACID's search sees it."""
        kit = self.kit.with_verifier(self.borrowed_verifier) if condition.borrows else self.kit
        joining, report = condition.terms_of(kit, 0.0 if lam is None else lam), measured(self.kit)
        return Cost([self.kit.goal(), *joining, *([] if report.name in {term.name for term in joining} else [report])])

    def planner(self, condition: Condition, lam: float | None) -> Planner:
        return self._planner(condition, self.cost(condition, lam), observer=self._observer)

    def _planner(self, condition: Condition, cost: Cost, observer: Observer | None = None) -> Planner:
        low, high = self.task.action_bounds
        bounds = (torch.from_numpy(low), torch.from_numpy(high)) if condition.bounded else None
        proposal = self.proposal if condition.proposes else None
        return self.kit.planner(
            cost, self.spec, bounds=bounds, proposal=proposal, precision=self._precision, observer=observer
        )

    @cached_property
    def borrowed_verifier(self) -> Verifier:
        """That of the cell's lender."""
        if self.cell.lender is None:
            raise AcidError(f"there is no other verifier for latents of this size than that of {self.cell.root}")
        verifier = Verifier.load(self.cell.lender.root / "verifier", device=self._device)
        verifier.fitted_to = None  # to another model, and that is the point
        return verifier

    def provenance(self, condition: Condition) -> Provenance:
        own = self.cell.fingerprints(condition.needs)
        if condition.borrows and self.cell.lender is not None:
            own["borrowed_verifier"] = self.cell.lender.fingerprints(["verifier"])["verifier"]
        return Provenance(own)


def may_share(metadata: Mapping[str, Any], episodes: Episodes) -> bool:
    """Whether a dataset may share episodes with the one that a checkpoint was trained on, by what both tell of it.

    Collected ones do if task and seed are the same, however many episodes there are. Others do if they are from the
    same place, however frames were cut and scaled; those that do not say where from, unless their contents differ.
    """
    from acid.data.partition import fingerprint

    trained_on, known = metadata.get("data", {}), metadata.get("partition", {}).get("fingerprint")
    ours, theirs = (_collection(attributes) for attributes in (episodes.attributes, trained_on))
    if ours or theirs:
        return ours == theirs
    here, there = (
        {name: value for name, value in attributes.items() if name not in ("size", "camera")}
        for attributes in (episodes.attributes, trained_on)
    )
    return here == there and (bool(here) or known in (None, fingerprint(episodes)))


def _collection(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Task and seed of a collected dataset; nothing for another one."""
    try:
        collection = json.loads(attributes["collection"])
        return collection["task"], collection["seed"]
    except (KeyError, TypeError, ValueError):
        return ()


def shipped() -> list[str]:
    """The cells that weights are shipped for, as task/model."""
    return sorted(f"{p.parent.name}/{p.name}" for p in ASSETS.glob("*/*") if (p / "model").is_dir())


def _instances_file(protocol: Protocol) -> str:
    return f"instances-{protocol.split}.jsonl"


def _read_lambdas(path: Path) -> dict[str, float]:
    content = read_json_object(path, remedy="remove it and choose again")
    try:
        found = {name: float(value) for name, value in content.items() if name != "reason"}
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path} does not hold a λ by condition ({error}); remove it and choose again") from error
    if unknown := sorted(found.keys() - CONDITIONS.keys()):
        close = did_you_mean(unknown[0], CONDITIONS)
        raise DataError(f"{path} holds a λ of the unknown condition {unknown[0]!r}{close}; remove it and choose again")
    if not all(math.isfinite(value) and value >= 0 for value in found.values()):
        raise DataError(f"{path} holds a λ that is negative or not finite; remove it and choose again")
    return found
