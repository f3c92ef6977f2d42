"""The end of a run: its files and its last words."""

from __future__ import annotations

from dataclasses import asdict

from ..model.nep_txt import NepFile
from ..model.nep_txt_write import write_nep_restart, write_nep_txt
from . import breakdown
from .compared import Comparison
from .judging import errors_of
from .loop import Run
from .outputs import Errors, compare, error_table, joined, write_outputs


def finish(run: Run) -> dict[str, Errors]:
    """Write the results of a run that has taken all its steps; nep.txt comes last."""
    file, predictions = run.judge()
    models, best = {"nep.txt": errors_of(run.sets, predictions, run.world)}, file
    if run.best.average is not None and run.best.step != run.done:
        best, of_best = run.judge(run.best.average)
        models["nep_best.txt"] = errors_of(run.sets, of_best, run.world)
    parts = run.world.to_first([(predictions[data.name], data.targets) for data in run.sets])
    run.world.from_first(lambda: _write(run, file, best, models, parts))
    return models["nep.txt"]


def _write(
    run: Run, file: NepFile, best: NepFile, models: dict[str, dict[str, Errors]], parts: list
):
    """All files; ``parts``: predictions and labels of each data set, of each process."""
    path, log, compared = run.folder.path, run.log, []
    for data, of_set in zip(run.sets, zip(*parts)):
        prediction, targets = (joined(list(pieces)) for pieces in zip(*of_set))
        write_outputs(path, data.name, prediction, targets)
        samples = data.prepared.labels.samples(run.model.settings.elements)
        compared.append(Comparison(data.name, compare(prediction, targets), samples))
    breakdown.write_breakdown(path, compared)
    write_nep_restart(path / "nep.restart", file)
    write_nep_txt(path / "nep_best.txt", best)
    write_nep_txt(path / "nep.txt", file)
    run.best_file = None
    run.finished = {
        model: {name: asdict(error) for name, error in found.items()}
        for model, found in models.items()
    }
    run.save()
    if run.step.skipped > 0:
        log(f"warning: {int(run.step.skipped)} steps gave no finite gradient and were skipped")
    if run.config.fine_tune and file.settings.neuron != run.config.model.neuron:
        neurons = " ".join(map(str, file.settings.neuron))
        log(f"nep.txt has neuron {neurons}: to go on with GPUMD's nep, write that into nep.in")
    if run.done < run.total:
        log(f"stopped early: {run.config.early_stop} steps brought no better model")
    log(f"done: {run.done} steps in {run.seconds():.0f} s; the model is {path / 'nep.txt'}")
    if len(models) > 1:
        log(f"the loss on the {run.judged} set was lowest at step {run.best.step}: nep_best.txt")
    if text := breakdown.breakdown_table(compared[-1]):
        log(text)
    log(model_table(models))


def model_table(models: dict[str, dict[str, Errors]]) -> str:
    """Errors by model and set, for people; of the best model too where it is another than the last."""
    return error_table(
        {
            name if len(models) == 1 else f"{model} {name}": error
            for model, found in models.items()
            for name, error in found.items()
        }
    )
