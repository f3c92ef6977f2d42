"""``nepkit info``: what a file or folder is, in a dozen lines."""

from __future__ import annotations

import ast
import os
from collections import Counter
from pathlib import Path

import numpy as np
from tqdm import tqdm

from .config import ModelSettings, read_nep_in
from .data.store import Store, Unusable
from .data.xyz import iter_xyz
from .errors import UserError, at
from .files import digest
from .model.nep_txt import NepFile, block_sizes, read_nep_txt
from .text import names, table
from .train import checkpoint
from .train.folder import at_work, read_manifest
from .train.report import milli
from .train.start import data_files
from .units import ELEMENTS

_DATA = (".xyz", ".extxyz", ".gz", ".xz")


def describe(path: str | os.PathLike) -> str:
    """Lines about a nep.txt, a checkpoint, a file of frames, a store or a run directory.

    Raises ``UserError`` for anything else, and for what is damaged.
    """
    path = Path(path)
    if path.is_dir():
        return _of_folder(path)
    try:
        with open(path, "rb") as file:
            start = file.read(256)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    words = start.removeprefix(b"\xef\xbb\xbf").split()
    if path.suffix.lower() in _DATA or (words and words[0].isdigit()):
        return _of_frames(path)
    if start.startswith(b"\x89HDF"):
        return _of_store(path)
    if start.startswith(b"PK") or path.suffix == ".pt":
        return _of_checkpoint(path, checkpoint.read(path))
    if words and words[0].startswith(b"nep"):
        return _of_model(path, read_nep_txt(path))
    raise UserError(
        f"{path}: neither a nep.txt nor a checkpoint.pt, an extended XYZ file or a run directory"
    )


def _of_store(path: Path) -> str:
    try:
        store = Store(path, None, "")
    except Unusable as reason:
        raise UserError(f"{path}: {reason}; it can be deleted") from None
    elements = store.key["elements"]
    radial, angular = (
        f"{min(c):g}" if min(c) == max(c) else f"{min(c):g} to {max(c):g}"
        for c in (store.key["radial cutoff"], store.key["angular cutoff"])
    )
    atoms, _, pairs, angulars = (f"{n:,}" for n in store.counts.sum(0).tolist())
    rows = [
        ("elements", f"{len(elements)}: {' '.join(elements)}"),
        ("cutoffs", f"{radial} Å radial, {angular} Å angular"),
        ("frames", f"{len(store):,}, {atoms} atoms, {pairs} pairs, {angulars} angular"),
        ("size", f"{path.stat().st_size / 1e6:,.0f} MB; it can be deleted at any time"),
    ]
    store.close()
    return table(f"{path}: neighbours that trainings start from", rows)


def _of_model(path: Path, file: NepFile) -> str:
    settings = file.settings
    alone = [f"{e} {x:.3f}" for e, x in zip(settings.elements, energies_alone(file), strict=True)]
    q = file.q_scaler
    rows = _model_rows(settings)
    rows.insert(2, ("neighbours", "at most {} radial, {} angular".format(*file.max_neighbors)))
    rows += [
        ("q_scaler", f"{q.min():.4g} to {q.max():.4g}"),
        ("atom alone", f"eV: {names(alone)}"),
    ]
    return table(f"{path}: a NEP4 potential{' with ZBL' if settings.zbl else ''}", rows)


def energies_alone(file: NepFile) -> np.ndarray:
    """Energy (T,) eV of an atom of each element without neighbours."""
    values = np.zeros((len(file.settings.elements), file.settings.descriptor_length))
    for weight, bias in zip(file.hidden_weight, file.hidden_bias, strict=True):
        values = np.tanh(np.einsum("thd,td->th", weight, values) - bias)
    return (file.output_weight * values).sum(1) - file.output_bias


def _model_rows(settings: ModelSettings) -> list[tuple[str, str]]:
    radial, angular = (
        f"{min(c):g}" if min(c) == max(c) else f"{min(c):g} to {max(c):g}"
        for c in (settings.radial_cutoff, settings.angular_cutoff)
    )
    pairs = [("n_max", settings.n_max), ("basis_size", settings.basis_size)]
    sizes = ", ".join(f"{name} {a} {b}" for name, (a, b) in pairs)
    more = f" and {' '.join(settings.invariants)}" if settings.invariants else ""
    rows = [
        ("elements", f"{len(settings.elements)}: {' '.join(settings.elements)}"),
        ("cutoffs", f"{radial} Å radial, {angular} Å angular"),
        (
            "descriptor",
            f"{settings.descriptor_length} components: {sizes}, l_max {settings.l_max}{more}",
        ),
        ("network", f"{' and '.join(map(str, settings.neuron))} neurons an element"),
        ("parameters", f"{sum(block_sizes(settings)[:4]):,}"),
    ]
    if zbl := settings.zbl:
        kind = f"universal, from {zbl.inner:g} to {zbl.outer:g} Å"
        if zbl.flexible is not None:
            kind = "flexible"
        elif zbl.typewise_factor is not None:
            kind = f"typewise, {zbl.typewise_factor:g} of the covalent radii, up to {zbl.outer:g} Å"
        rows.append(("zbl", kind))
    return rows


def _of_checkpoint(path: Path, state: dict) -> str:
    identity = state["identity"]
    rows = _progress(path.parent, state)
    try:
        model = ", ".join(
            f"{name} {' '.join(map(str, np.ravel(ast.literal_eval(identity[name]))))}"
            for name in ("elements", "n_max", "basis_size", "l_max", "neuron")
        )
    except (KeyError, ValueError, SyntaxError) as error:
        raise UserError(f"{path}: damaged: its settings cannot be read") from error
    rows.append(("model", f"{model}; {len(state['flat']):,} parameters here"))
    rows.append(("precision", f"{identity['precision']}, seed {identity['seed']}"))
    for key, value in identity.items():
        if key.startswith("content of "):
            file = _data_file(path.parent, key.removeprefix("content of "))
            rows.append(("data", _data_state(file, value)))
    return table(f"{path}: a checkpoint of nepkit", rows)


def _data_file(folder: Path, name: str) -> Path:
    """A file that the run in ``folder`` was trained on, where the run had it."""
    recorded = read_manifest(folder)[1].get("data", {})
    places = {Path(place).name: place for place in recorded.values()}
    return Path(os.path.normpath(folder / places.get(name, name)))


def _data_state(file: Path, known: str) -> str:
    found = digest(file)
    if not found:
        return f"{file.name}, which does not lie here"
    return f"{file.name}, {'as it is now' if found == known else 'which has changed since'}"


def _progress(folder: Path, state: dict) -> list[tuple[str, str]]:
    """How far a training is, and how it goes on."""
    done, total = state["done"], sum(state["steps"])
    stages = len(state["steps"])
    stage = f", stage {state['stage'] + 1} of {stages}" if stages > 1 else ""
    rows = [("steps", f"{done:,} of {total:,} done{stage}, in {state['spent']:.0f} s")]
    if numbers := state["best"]["errors"]:
        units = zip(numbers.items(), ("meV/atom", "meV/Å", "meV/atom"))
        told = ", ".join(f"{k} {milli(x)} {unit}" for (k, x), unit in units if x is not None)
        rows.append(("best", f"at step {state['best']['step']:,}: {told}"))
    here = (folder / "nep.in").exists()
    run_dir = _data_file(folder, "train.xyz").parent
    command = f"nepkit train {folder}" if here else f"nepkit train {run_dir} --out {folder}"
    if at_work(folder):
        rows.append(("state", "a run is at work here now"))
    elif state["finished"]:
        for name, found in state["finished"]["nep.txt"].items():
            values = (milli(found[k]) for k in ("energy", "force", "virial"))
            text = "energy {} meV/atom, force {} meV/Å, virial {} meV/atom".format(*values)
            rows.append((f"{name} RMSE", text))
        rows.append(("state", f"finished; with more generation, {command} goes on"))
    else:
        rows.append(("state", f"not finished: {command} goes on"))
    return rows


def _of_folder(path: Path) -> str:
    state = checkpoint.load(path)
    if not (path / "nep.in").exists() and state is None:
        raise UserError(f"{path}: no run directory: neither nep.in nor checkpoint.pt is there")
    rows = []
    if (path / "nep.in").exists():
        config = read_nep_in(path / "nep.in")
        rows += _model_rows(config.model)
        files = data_files(path).values()
        sizes = [
            f"{file.name} {_size(file)}" if file.exists() else f"{file.name} is missing"
            for file in files
        ]
        rows.append(("data", ", ".join(sizes)))
    if state is not None:
        rows += _progress(path, state)
    elif at_work(path):
        rows.append(("state", "a run is at work here now"))
    else:
        rows.append(("state", f"no training yet: nepkit train {path}"))
    models = [name for name in ("nep.txt", "nep_best.txt") if (path / name).exists()]
    if models:
        rows.append(("models", ", ".join(models)))
    return table(f"{path}: a run directory", rows)


def _size(file: Path) -> str:
    n_bytes = file.stat().st_size
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def _of_frames(path: Path) -> str:
    elements, labels, sources = Counter(), Counter(), Counter()
    sizes, open_frames = [], 0
    with tqdm(
        iter_xyz(path), f"reading {path}", unit=" frames", disable=None, leave=False, delay=1.0
    ) as frames:
        for frame in frames:
            sizes.append(len(frame))
            elements.update(np.unique(frame.numbers).tolist())
            for label in ("energy", "forces", "virial"):
                labels[label] += getattr(frame, label) is not None
            sources[frame.source.split("/")[0]] += 1
            open_frames += not frame.pbc.all()
    found = [f"{ELEMENTS[k - 1]} {count:,}" for k, count in elements.most_common()]
    rows = [
        ("atoms", f"{sum(sizes):,}; {min(sizes)} to {max(sizes)} a frame"),
        ("elements", f"{len(found)}; in so many frames: {names(found)}"),
        ("labels", ", ".join(f"{name} in {n:,}" for name, n in labels.items())),
        ("config_type", names([f"{name or '(none)'} {n:,}" for name, n in sources.most_common()])),
    ]
    if open_frames:
        rows.append(("pbc", f"{open_frames:,} frames are not periodic in all directions"))
    return table(f"{at(path)}: {len(sizes):,} frames of extended XYZ", rows)
