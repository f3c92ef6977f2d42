"""The training loop: steps, reports, checkpoints."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from tqdm import tqdm

from ..config import NepConfig
from ..data.sampler import Sampler
from ..data.windows import at_hand, sampler_of
from ..errors import UserError
from ..model.evaluate import Prediction
from ..model.nep import Nep
from ..model.nep_txt import NepFile
from ..model.nep_txt_write import write_nep_txt
from . import checkpoint
from .fine_tune import frozen_descriptor
from .folder import OutputFolder
from .judging import DataSet, errors_of, judge
from .log import NoTable, RunLog, Table
from .loss import label_counts, regularisation
from .outputs import Errors, kept_at, save_potential
from .place import launcher
from .profiling import NAME, Recording
from .report import ReportTable, formula, numbers_of, progress
from .schedule import learning_rate
from .signals import Interrupted
from .step import Step
from .stop import Stopping
from .tensorboard import Scalars
from .world import ALONE, World

# A run ends when so many steps in a row gave no finite gradient.
UNUSABLE_STEPS = 10
# Seconds between checkpoints, where no report brings one.
CHECKPOINT_SECONDS = 60.0
HISTORY = (
    "step,stage,seconds,learning_rate,loss,"
    "energy_train_eV_per_atom,force_train_eV_per_A,virial_train_eV_per_atom,"
    "energy_test_eV_per_atom,force_test_eV_per_A,virial_test_eV_per_atom\n"
)


@dataclass
class Run:
    """A training under way."""

    folder: OutputFolder
    config: NepConfig  # resolved
    model: Nep
    sets: list[DataSet]  # train, and test where there is one
    max_neighbors: tuple[int, int]
    identity: dict
    log: RunLog
    force_mode: str = "analytic"
    profile: int = 0  # steps to take under the profiler
    tensorboard: bool = False  # whether to write the reports for TensorBoard too
    world: World = ALONE
    end: float | None = None  # of the time that the run has, by time.monotonic()
    done: int = 0  # steps over all stages
    finished: dict = field(default_factory=dict)  # errors of a run that has written its results
    best: float = float("inf")
    best_step: int = 0
    spent: float = 0.0  # seconds in earlier processes
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self):
        prepared = self.sets[0].prepared
        use_virial = not np.isnan(prepared.labels.virial).all()
        self.step = Step(
            self.model,
            prepared.structures,
            self.config.stages[0],
            use_virial=use_virial,
            force_mode=self.force_mode,
            tell=self.log,
            fine_tuned=bool(self.config.fine_tune),
            frozen=frozen_descriptor(self.config),
            world=self.world,
            labels=label_counts(prepared.labels),
        )
        kind = Table if self.world.first else NoTable
        self.loss_out = kind(self.folder.path / "loss.out")
        self.history = kind(self.folder.path / "history.csv", HISTORY)
        self.total = sum(stage.generation for stage in self.config.stages)
        self.number = 0  # stage of the last step done
        names = [data.name for data in self.sets]
        self.table = ReportTable(names, self.total, self.config.output_interval)

    def stage_of(self, done: int) -> tuple[int, int]:
        """The stage that step ``done`` belongs to, and the step's number in it."""
        for number, stage in enumerate(self.config.stages):
            if done < stage.generation:
                return number, done
            done -= stage.generation
        return number, stage.generation

    def train(self):
        """Take all steps that are left."""
        interval = self.config.output_interval
        sampler, structures = self.sampler(self.number), self.sets[0].prepared.structures
        if self.done < self.total:
            # What has to be compiled is compiled before the clock of the bar starts.
            self.step.warm_up(sampler.frames(0))
            self.log(self.table.head)
        first = self.world.first
        hidden = None if first else True
        bar = tqdm(total=self.total, initial=self.done, unit=" steps", disable=hidden, leave=False)
        saved = time.monotonic()
        trace = self.folder.path / NAME if first else None
        recording = Recording(self.profile, self.step, trace, self.log)
        self.scalars = Scalars(self.tensorboard and first, self.folder.path, self.done)
        stopping = Stopping(self.world, self.step.batch.wish, self.end)
        with bar, stopping, recording, self.scalars:
            while self.done < self.total:
                recording.begin_step()
                number, local = self.stage_of(self.done)
                if number != self.number:
                    self.number, sampler = number, self.sampler(number)
                    self.step.begin_stage(self.config.stages[number])
                frames = at_hand(structures, sampler, local)
                value = self._take_step(frames, local, stopping.wanted())
                self.step.prepare(at_hand(structures, sampler, local + 1))
                bar.update()
                self._save_potential()
                reported = self.done % interval == 0 or self.done == self.total
                stops = stopping.agreed(self.done)
                with stopping.timed(reported):
                    if reported:
                        bar.set_postfix_str(self.report(float(value)))
                    if reported or stops or time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self.save(stops)
                        saved = time.monotonic()
                recording.end_step()
                if stops:
                    raise Interrupted

    def _take_step(self, frames: np.ndarray, local: int, stop: bool = False) -> torch.Tensor:
        """One step with ``frames``, step ``local`` of the stage; returns the loss."""
        rate = learning_rate(local, self.step.stage)
        value = self.step(frames, rate, self.done, stop)
        self.done += 1
        # Reading the flag waits for the device, so that a GPU is asked only now and then.
        if value.device.type == "cpu" or self.done % self.config.output_interval == 0:
            self._check_finite(frames)
        return value

    def sampler(self, stage: int) -> Sampler:
        """The order of the training frames in a stage."""
        structures = self.sets[0].prepared.structures
        return sampler_of(structures, self.config.stages[stage].batch, self.config.seed, stage)

    def _check_finite(self, frames: np.ndarray):
        if self.step.unusable >= UNUSABLE_STEPS:
            labels = self.sets[0].prepared.labels
            places = ", ".join(map(str, labels.index[frames[:20]]))
            raise UserError(
                f"{labels.path}: {UNUSABLE_STEPS} steps in a row gave no finite gradient, the "
                f"last with frames {places};\nlook at these frames, or lower learning_rate"
            )

    def judge(self) -> tuple[NepFile, dict[str, Prediction]]:
        """The model as a nep.txt, and its predictions by data set, as in judging.judge."""
        step = self.step
        found = judge(self.model, step.average, self.max_neighbors, self.sets, self.world)
        if found is None:
            raise UserError(
                f"{self.folder.path}: the parameters have grown beyond all bounds; lower "
                "learning_rate or weight_decay and start anew with --restart"
            )
        return found

    def _save_potential(self):
        if kept_at(self.config, self.done):
            file, _ = self.judge()
            if self.world.first:
                save_potential(self.folder, self.config, self.done, file)

    def report(self, batch_loss: float) -> str:
        """Judge the model on all data, write it and a row of loss.out; the best is kept."""
        file, predictions = self.judge()
        found = errors_of(self.sets, predictions, self.world)
        stage = self.step.stage
        l1, l2 = (float(term) for term in regularisation(self.step.average, stage)[:2])
        total = l1 + l2 + formula(found["train"], stage)
        test = found.get("test", Errors(None, None, None))
        numbers = [*numbers_of(found["train"]), *numbers_of(test)]
        self.loss_out.add(
            " ".join([f"{self.done}", *(f"{x:.10g}" for x in (total, l1, l2, *numbers))])
        )
        rate = float(self.step.optimizer.param_groups[0]["lr"])
        start = f"{self.done},{self.number + 1},{self.seconds():.1f},{rate:.6g},{batch_loss:.8g}"
        self.history.add(",".join([start, *(f"{x:.8g}" for x in numbers)]))
        judged = found.get("test", found["train"])
        score = formula(judged, self.config.stages[-1])
        if score < self.best:
            self.best, self.best_step = score, self.done
            if self.world.first:
                write_nep_txt(self.folder.path / "nep_best.txt", file)
        if self.table.shown(self.done):
            self.log(self.table.row(self.done, total, found, self.seconds()))
        self.scalars.add(self.done, total, rate, found)
        return progress(total, self.sets[-1].name, judged)

    def seconds(self) -> float:
        """Wall time of this run so far, earlier processes included."""
        return self.spent + time.monotonic() - self._started

    def save(self, stops: bool = False):
        """Write the checkpoint; every process would write the same."""
        if not self.world.first:
            return
        checkpoint.save(
            self.folder.path,
            {
                "identity": self.identity,
                "processes": self.world.size,
                "stopped": launcher() if stops else None,
                "steps": [stage.generation for stage in self.config.stages],
                "stage": self.number,
                "done": self.done,
                "best": self.best,
                "best_step": self.best_step,
                "spent": self.seconds(),
                "finished": self.finished,
                "flat": self.model.flat,
                "q_scaler": self.model.q_scaler,
                "file_q_scaler": self.model.file_q_scaler,
                "element_energy": self.model.element_energy,
                "step": self.step.state(),
                "loss_out": self.loss_out.size(),
                "history": self.history.size(),
            },
        )

    def resume(self, state: dict):
        """Take up the run where ``state``, a checkpoint, left it."""
        self.done, self.spent = state["done"], state["spent"]
        self.best, self.best_step = state["best"], state["best_step"]
        for name in ("flat", "q_scaler", "file_q_scaler", "element_energy"):
            getattr(self.model, name).copy_(state[name])
        self.number = state["stage"]  # of the last step done, whose optimizer this is
        self.step.begin_stage(self.config.stages[self.number])
        self.step.load_state(state["step"])
        self.loss_out.cut(state["loss_out"])
        self.history.cut(state["history"])
