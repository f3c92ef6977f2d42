"""The results of a run that has taken all its steps."""

from __future__ import annotations

from dataclasses import asdict

from ..model.nep_txt import NepFile
from ..model.nep_txt_write import write_nep_restart, write_nep_txt
from .judging import errors_of
from .loop import Run
from .outputs import Errors, error_table, joined, write_outputs


def finish(run: Run) -> dict[str, Errors]:
    """Write the results of a run that has taken all its steps; nep.txt comes last."""
    file, predictions = run.judge()
    found = errors_of(run.sets, predictions, run.world)
    parts = run.world.to_first([(predictions[data.name], data.targets) for data in run.sets])
    run.world.from_first(lambda: _write(run, file, found, parts))
    return found


def _write(run: Run, file: NepFile, found: dict[str, Errors], parts: list):
    """All files; ``parts``: predictions and labels of each data set, of each process."""
    path, log = run.folder.path, run.log
    for data, of_set in zip(run.sets, zip(*parts)):
        write_outputs(path, data.name, *(joined(list(pieces)) for pieces in zip(*of_set)))
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
    log(error_table(found))
