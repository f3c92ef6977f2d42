"""The end of a run: its files and its last words."""

from __future__ import annotations

from dataclasses import asdict

from ..config import NepConfig
from ..model.nep_txt_write import write_nep_restart, write_nep_txt
from . import breakdown, checkpoint
from .compared import Comparison
from .folder import OutputFolder
from .loop import Run
from .outputs import Errors, compare, error_table, errors, output_names, write_outputs


def results_of(sets: list[str]) -> list[str]:
    """What every finished run has."""
    outputs = [name for data in sets for name in output_names(data)]
    names = ["nep.txt", "nep_best.txt", "nep.restart", checkpoint.NAME]
    return [*names, breakdown.ERRORS, breakdown.LARGEST, *outputs]


def finished(
    state: dict, config: NepConfig, folder: OutputFolder, sets: list[str]
) -> dict[str, Errors]:
    """The errors of a run that is complete and whose files are as it left them; else nothing."""
    total = sum(stage.generation for stage in config.stages)
    if state["done"] != total or not folder.unchanged(results_of(sets)):
        return {}
    return {name: Errors(**numbers) for name, numbers in state["finished"].items()}


def finish(run: Run) -> dict[str, Errors]:
    """Write the results of a run that has taken all its steps; nep.txt comes last."""
    path, log = run.folder.path, run.log
    file, predictions = run.judge()
    found = {}
    for data in run.sets:
        write_outputs(path, data.name, predictions[data.name], data.targets)
        found[data.name] = errors(predictions[data.name], data.targets)
    compared = [
        Comparison(data.name, compare(predictions[data.name], data.targets), data.prepared.frames)
        for data in run.sets
    ]
    breakdown.write_breakdown(path, compared)
    write_nep_restart(path / "nep.restart", file)
    if not (path / "nep_best.txt").exists():
        write_nep_txt(path / "nep_best.txt", file)
    write_nep_txt(path / "nep.txt", file)
    run.finished = {name: asdict(errors) for name, errors in found.items()}
    run.save()
    if run.step.skipped > 0:
        log(f"warning: {int(run.step.skipped)} steps gave no finite gradient and were skipped")
    if run.config.fine_tune and file.settings.neuron != run.config.model.neuron:
        neurons = " ".join(map(str, file.settings.neuron))
        log(f"nep.txt has neuron {neurons}: to go on with GPUMD's nep, write that into nep.in")
    judged = run.sets[-1].name
    log(f"done: {run.total} steps in {run.seconds():.0f} s; the model is {path / 'nep.txt'}")
    if run.best_step < run.total:
        log(f"the loss on {judged}.xyz was lowest at step {run.best_step}: nep_best.txt")
    if text := breakdown.breakdown_table(compared[-1]):
        log(text)
    log(error_table(found))
    return found
