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
from .best import Best, judging_set, over
from .fine_tune import frozen_part
from .folder import OutputFolder
from .judging import DataSet, errors_of, judge
from .log import NoTable, RunLog, Table
from .loss import label_counts, regularisation
from .outputs import kept_at, save_potential
from .place import launcher
from .profiling import NAME, Recording
from .report import UNKNOWN, ReportTable, formula, history_head, numbers_of, progress
from .schedule import learning_rate
from .shared import parametrisation_of
from .signals import Interrupted
from .step import Step
from .stop import Stopping
from .tensorboard import Scalars
from .world import ALONE, World

# A run ends when so many steps in a row gave no finite gradient.
UNUSABLE_STEPS = 10
# Seconds between checkpoints, where no report brings one; it does while that takes a small part
# of the time, one in SAVING_COSTS.
CHECKPOINT_SECONDS, SAVING_COSTS = 60.0, 20
OF_MODEL = ("flat", "q_scaler", "file_q_scaler", "element_energy")


@dataclass
class Run:
    """A training under way."""

    folder: OutputFolder
    config: NepConfig  # resolved
    model: Nep
    sets: list[DataSet]  # train, and valid and test where there are such
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
    best: Best = field(default_factory=Best)
    best_file: NepFile | None = None  # the best model where nep_best.txt is an older one
    saving: float = 0.0  # seconds that it takes
    spent: float = 0.0  # seconds in earlier processes
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self):
        prepared = self.sets[0].prepared
        use_virial = not np.isnan(prepared.labels.virial).all()
        self.step = Step(
            self.model, prepared.structures, self.config.stages[0],
            use_virial=use_virial, force_mode=self.force_mode, tell=self.log,
            parametrisation=parametrisation_of(self.config), frozen=frozen_part(self.config),
            world=self.world, labels=label_counts(prepared.labels),
        )  # fmt: skip
        kind = Table if self.world.first else NoTable
        self.loss_out = kind(self.folder.path / "loss.out")
        names = [data.name for data in self.sets]
        # Those of GPUMD's columns, and what else there is.
        self.columns = ["train", "test", *(name for name in names if name == "valid")]
        self.history = kind(self.folder.path / "history.csv", history_head(self.columns))
        self.total = sum(stage.generation for stage in self.config.stages)
        self.number = 0  # stage of the last step done
        self.judged = judging_set(self.sets, self.config.stages[-1])
        shown = list(dict.fromkeys(["train", self.judged]))
        self.table = ReportTable(shown, self.total, self.config.output_interval)

    def stage_of(self, done: int) -> tuple[int, int]:
        """The stage that step ``done`` belongs to, and the step's number in it."""
        for number, stage in enumerate(self.config.stages):
            if done < stage.generation:
                return number, done
            done -= stage.generation
        return number, stage.generation

    def over(self) -> bool:
        """Whether no step is left to take."""
        return over(self.config, self.done, self.best.step)

    def train(self):
        """Take all steps that are left."""
        sampler, structures = self.sampler(self.number), self.sets[0].prepared.structures
        if not self.over():
            # What has to be compiled is compiled before the clock of the bar starts.
            self.step.warm_up(sampler.frames(0))
            self.log(self.table.head)
        first, hidden = self.world.first, not self.world.first or None
        bar = tqdm(total=self.total, initial=self.done, unit=" steps", disable=hidden, leave=False)
        saved = time.monotonic()
        trace = self.folder.path / NAME if first else None
        recording = Recording(self.profile, self.step, trace, self.log)
        self.scalars = Scalars(self.tensorboard and first, self.folder.path, self.done)
        stopping = Stopping(self.world, self.step.batch.wish, self.end)
        with bar, stopping, recording, self.scalars:
            while not self.over():
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
                reported = self.done % self.config.output_interval == 0 or self.done == self.total
                stops = stopping.agreed(self.done)
                with stopping.timed(reported):
                    if reported:
                        bar.set_postfix_str(self.report(float(value)))
                    since = time.monotonic() - saved
                    cheap = since > SAVING_COSTS * self.saving
                    if reported and cheap or stops or since > CHECKPOINT_SECONDS or self.over():
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

    def judge(self, average: torch.Tensor | None = None) -> tuple[NepFile, dict[str, Prediction]]:
        """The model of the averaged parameters, or of ``average``, as a nep.txt, and its predictions
        by data set, as in judging.judge."""
        flat = self.step.average if average is None else average.to(self.model.flat.device)
        found = judge(self.model, flat, self.max_neighbors, self.sets, self.world)
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
        l1, l2 = map(float, regularisation(self.model, self.step.average, stage)[:2])
        total = l1 + l2 + formula(found["train"], stage)
        numbers = [x for name in self.columns for x in numbers_of(found.get(name, UNKNOWN))]
        row = (total, l1, l2, *numbers[:6])
        self.loss_out.add(" ".join([f"{self.done}", *(f"{x:.10g}" for x in row)]))
        rate = self.step.rate
        start = f"{self.done},{self.number + 1},{self.seconds():.1f},{rate:.6g},{batch_loss:.8g}"
        self.history.add(",".join([start, *(f"{x:.8g}" for x in numbers)]))
        now = found[self.judged]
        if self.best.offer(self.done, now, self.step.average, self.config.stages[-1]):
            self.best_file = file
        if self.table.shown(self.done):
            self.log(self.table.row(self.done, total, found, self.seconds()))
        self.scalars.add(self.done, total, rate, found)
        return progress(total, self.judged, now)

    def seconds(self) -> float:
        """Wall time of this run so far, earlier processes included."""
        return self.spent + time.monotonic() - self._started

    def save(self, stops: bool = False):
        """Write the checkpoint, and nep_best.txt where there is a better one; every process would
        write the same."""
        if not self.world.first:
            return
        start = time.monotonic()
        if self.best_file is not None:
            write_nep_txt(self.folder.path / "nep_best.txt", self.best_file)
            self.best_file = None
        checkpoint.save(
            self.folder.path,
            {
                "identity": self.identity,
                "processes": self.world.size,
                "stopped": launcher() if stops else None,
                "steps": [stage.generation for stage in self.config.stages],
                "stage": self.number,
                "done": self.done,
                "best": self.best.state(),
                "spent": self.seconds(),
                "finished": self.finished,
                **{name: getattr(self.model, name) for name in OF_MODEL},
                "step": self.step.state(),
                "loss_out": self.loss_out.size(),
                "history": self.history.size(),
            },
        )
        self.saving = time.monotonic() - start

    def resume(self, state: dict):
        """Take up the run where ``state``, a checkpoint, left it."""
        self.done, self.spent = state["done"], state["spent"]
        self.best = Best.of(state["best"])
        for name in OF_MODEL:
            getattr(self.model, name).copy_(state[name])
        self.number = state["stage"]  # of the last step done, whose optimizer this is
        self.step.begin_stage(self.config.stages[self.number])
        self.step.load_state(state["step"])
        self.loss_out.cut(state["loss_out"])
        self.history.cut(state["history"])
