"""The training loop: steps, reports, checkpoints."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from tqdm import tqdm

from ..config import NepConfig
from ..data.prepared import Prepared
from ..data.sampler import Sampler
from ..errors import UserError
from ..model.conversion import model_from_file, model_to_file
from ..model.evaluate import Prediction, predict
from ..model.nep import Nep
from ..model.nep_txt import NepFile
from ..model.nep_txt_write import write_nep_txt
from . import checkpoint
from .best import Best, judged, stalled
from .fine_tune import frozen_part
from .folder import OutputFolder
from .log import RunLog, Table
from .loss import regularisation
from .outputs import Errors, Targets, errors, mean_energy_error, save_potential
from .profiling import NAME, Recording
from .report import ReportTable, formula, numbers_of, progress
from .schedule import learning_rate
from .signals import Interrupted, StopRequest
from .step import Step
from .tensorboard import Scalars

# A run ends when so many steps in a row gave no finite gradient.
UNUSABLE_STEPS = 10
# Seconds between checkpoints, where no report brings one; it does while that takes a small part
# of the time, one in SAVING_COSTS.
CHECKPOINT_SECONDS, SAVING_COSTS = 60.0, 20
HISTORY = "step,stage,seconds,learning_rate,loss"
ERRORS = ",energy_{0}_eV_per_atom,force_{0}_eV_per_A,virial_{0}_eV_per_atom"


@dataclass
class DataSet:
    """Frames ready for the model, with their labels."""

    name: str  # train, valid or test
    prepared: Prepared
    targets: Targets


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
    done: int = 0  # steps over all stages
    finished: dict = field(default_factory=dict)  # errors of a run that has written its results
    best: Best = field(default_factory=Best)
    best_file: NepFile | None = None  # the best model where nep_best.txt is an older one
    spent: float = 0.0  # seconds in earlier processes
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self):
        prepared = self.sets[0].prepared
        use_virial = any(frame.virial is not None for frame in prepared.frames)
        self.step = Step(
            self.model, prepared.structures, self.config.stages[0],
            use_virial=use_virial, force_mode=self.force_mode, tell=self.log,
            fine_tuned=bool(self.config.fine_tune), frozen=frozen_part(self.config),
        )  # fmt: skip
        self.loss_out = Table(self.folder.path / "loss.out")
        names = [data.name for data in self.sets]
        # Those of GPUMD's columns, and what else there is.
        self.columns = ["train", "test", *(name for name in names if name == "valid")]
        head = HISTORY + "".join(ERRORS.format(name) for name in self.columns) + "\n"
        self.history = Table(self.folder.path / "history.csv", head)
        self.total = sum(stage.generation for stage in self.config.stages)
        self.number = 0  # stage of the last step done
        self.judged = judged(names)
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
        return self.done == self.total or stalled(self.config, self.done, self.best.step)

    def train(self):
        """Take all steps that are left."""
        interval = self.config.output_interval
        sampler = self._sampler(self.number)
        if not self.over():
            # What has to be compiled is compiled before the clock of the bar starts.
            self.step.warm_up(sampler.frames(0))
            self.log(self.table.head)
        bar = tqdm(total=self.total, initial=self.done, unit=" steps", disable=None, leave=False)
        saved, self.saving = time.monotonic(), 0.0
        recording = Recording(self.profile, self.step, self.folder.path / NAME, self.log)
        self.scalars = Scalars(self.tensorboard, self.folder.path, self.done)
        with bar, StopRequest() as stop, recording, self.scalars:
            while not self.over():
                recording.begin_step()
                number, local = self.stage_of(self.done)
                if number != self.number:
                    self.number, sampler = number, self._sampler(number)
                    self.step.begin_stage(self.config.stages[number])
                value = self._take_step(sampler.frames(local), local)
                self.step.prepare(sampler.frames(local + 1))
                bar.update()
                save_potential(self.folder, self.config, self.done, lambda: self.judge()[0])
                reported = self.done % interval == 0 or self.done == self.total
                if reported:
                    bar.set_postfix_str(self.report(float(value)))
                since = time.monotonic() - saved
                wanted = reported and since > SAVING_COSTS * self.saving
                if wanted or stop.asked or self.done == self.total or since > CHECKPOINT_SECONDS:
                    self.save()
                    saved = time.monotonic()
                recording.end_step()
                if stop.asked:
                    raise Interrupted

    def _take_step(self, frames: np.ndarray, local: int) -> torch.Tensor:
        """One step with ``frames``, step ``local`` of the stage; returns the loss."""
        rate = learning_rate(local, self.step.stage)
        value = self.step(frames, rate, self.done)
        self.done += 1
        # Reading the flag waits for the device, so that a GPU is asked only now and then.
        if value.device.type == "cpu" or self.done % self.config.output_interval == 0:
            self._check_finite(frames)
        return value

    def _sampler(self, stage: int) -> Sampler:
        batch = self.config.stages[stage].batch
        pairs = self.sets[0].prepared.structures.counts[:, 2:].sum(1)
        return Sampler(pairs.astype(float), batch, self.config.seed, stage)

    def _check_finite(self, frames: np.ndarray):
        if self.step.unusable >= UNUSABLE_STEPS:
            labels = [self.sets[0].prepared.frames[k] for k in frames.tolist()]
            places = ", ".join(str(frame.index) for frame in labels[:20])
            raise UserError(
                f"{labels[0].path}: {UNUSABLE_STEPS} steps in a row gave no finite gradient, the "
                f"last with frames {places};\nlook at these frames, or lower learning_rate"
            )

    def judge(self, average: torch.Tensor | None = None) -> tuple[NepFile, dict[str, Prediction]]:
        """The model as a nep.txt, of the averaged parameters, and its predictions by data set.

        ``average`` (n_parameters,): those of an earlier step. As in GPUMD the common bias takes up the mean error of the training energies per atom.
        """
        flat, average = self.model.flat, self.step.average if average is None else average
        file = model_to_file(self.model, average.to(flat.device), self.max_neighbors)
        model = model_from_file(file, device=flat.device, dtype=flat.dtype)
        found = {data.name: predict(model, data.prepared) for data in self.sets}
        train = self.sets[0].targets
        shift = mean_energy_error(found["train"], train)
        if not (math.isfinite(shift) and torch.isfinite(average).all()):
            raise UserError(
                f"{self.folder.path}: the parameters have grown beyond all bounds; lower "
                "learning_rate or weight_decay and start anew with --restart"
            )
        for data in self.sets:
            found[data.name].energy[:] -= shift * data.targets.n_atoms
        return replace(file, output_bias=file.output_bias + shift), found

    def report(self, batch_loss: float) -> str:
        """Judge the model on all data, write it and a row of loss.out; the best is kept."""
        file, predictions = self.judge()
        found = {data.name: errors(predictions[data.name], data.targets) for data in self.sets}
        stage = self.step.stage
        terms = regularisation(self.model, self.step.average, stage)
        l1, l2 = float(terms[0]), float(terms[1])
        total = l1 + l2 + formula(found["train"], stage)
        nothing = Errors(None, None, None)
        numbers = [x for name in self.columns for x in numbers_of(found.get(name, nothing))]
        row = (total, l1, l2, *numbers[:6])
        self.loss_out.add(" ".join([f"{self.done}", *(f"{x:.10g}" for x in row)]))
        rate = float(self.step.optimizer.param_groups[0]["lr"])
        start = f"{self.done},{self.number + 1},{self.seconds():.1f},{rate:.6g},{batch_loss:.8g}"
        self.history.add(",".join([start, *(f"{x:.8g}" for x in numbers)]))
        errors_now = found[self.judged]
        if self.best.offer(self.done, errors_now, self.step.average, self.config.stages[-1]):
            self.best_file = file
        if self.table.shown(self.done):
            self.log(self.table.row(self.done, total, found, self.seconds()))
        self.scalars.add(self.done, total, rate, found)
        return progress(total, self.judged, errors_now)

    def seconds(self) -> float:
        """Wall time of this run so far, earlier processes included."""
        return self.spent + time.monotonic() - self._started

    def save(self):
        """Write the checkpoint, and nep_best.txt where there is a better one."""
        start = time.monotonic()
        if self.best_file is not None:
            write_nep_txt(self.folder.path / "nep_best.txt", self.best_file)
            self.best_file = None
        checkpoint.save(
            self.folder.path,
            {
                "identity": self.identity,
                "steps": [stage.generation for stage in self.config.stages],
                "stage": self.number,
                "done": self.done,
                "best": self.best.state(),
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
        self.saving = time.monotonic() - start

    def resume(self, state: dict):
        """Take up the run where ``state``, a checkpoint, left it."""
        self.done, self.spent = state["done"], state["spent"]
        self.best = Best.of(state["best"])
        for name in ("flat", "q_scaler", "file_q_scaler", "element_energy"):
            getattr(self.model, name).copy_(state[name])
        self.number = state["stage"]  # of the last step done, whose optimizer this is
        self.step.begin_stage(self.config.stages[self.number])
        self.step.load_state(state["step"])
        self.loss_out.cut(state["loss_out"])
        self.history.cut(state["history"])
