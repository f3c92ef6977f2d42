"""The end of a run: its files and its last words."""

from __future__ import annotations

from dataclasses import asdict

from ..config import NepConfig
from ..model.evaluate import Prediction
from ..model.nep_txt_write import write_nep_restart, write_nep_txt
from . import breakdown, checkpoint
from .best import stalled
from .compared import Comparison
from .folder import OutputFolder
from .loop import Run
from .outputs import Errors, compare, error_table, errors, output_names, write_outputs
from .start import VALID_FRAMES


def results_of(sets: list[str]) -> list[str]:
    """What every finished run with these data sets has."""
    outputs = [name for data in sets for name in output_names(data)]
    names = ["nep.txt", "nep_best.txt", "nep.restart", checkpoint.NAME]
    names += [VALID_FRAMES] * ("valid" in sets)
    return [*names, breakdown.ERRORS, breakdown.LARGEST, *outputs]


def finished(
    state: dict, config: NepConfig, folder: OutputFolder, sets: list[str]
) -> dict[str, dict[str, Errors]]:
    """Errors by model and set of a run that is complete, its files as it left them; else nothing."""
    total = sum(stage.generation for stage in config.stages)
    over = state["done"] == total or stalled(config, state["done"], state["best"]["step"])
    if not over or not folder.unchanged(results_of(sets)):
        return {}
    return {
        model: {name: Errors(**numbers) for name, numbers in found.items()}
        for model, found in state["finished"].items()
    }


def model_table(models: dict[str, dict[str, Errors]]) -> str:
    """Errors by model and set, for people; of the best model too where it is another than the last."""
    return error_table(
        {
            name if len(models) == 1 else f"{model} {name}": error
            for model, found in models.items()
            for name, error in found.items()
        }
    )


def finish(run: Run) -> dict[str, Errors]:
    """Write the results of a run that has taken all its steps; nep.txt comes last."""
    path, log = run.folder.path, run.log
    file, predictions = run.judge()
    models = {"nep.txt": _errors(run, predictions)}
    if run.best.average is None or run.best.step == run.done:
        write_nep_txt(path / "nep_best.txt", file)
    else:
        best, of_best = run.judge(run.best.average)
        write_nep_txt(path / "nep_best.txt", best)
        models["nep_best.txt"] = _errors(run, of_best)
    compared = []
    for data in run.sets:
        prediction = predictions[data.name]
        write_outputs(path, data.name, prediction, data.targets)
        frames = data.prepared.frames
        compared.append(Comparison(data.name, compare(prediction, data.targets), frames))
    breakdown.write_breakdown(path, compared)
    write_nep_restart(path / "nep.restart", file)
    write_nep_txt(path / "nep.txt", file)
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
    return models["nep.txt"]


def _errors(run: Run, predictions: dict[str, Prediction]) -> dict[str, Errors]:
    return {data.name: errors(predictions[data.name], data.targets) for data in run.sets}
