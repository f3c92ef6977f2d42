"""Training steps of other NEP trainers, for comparison with nepkit's own.

`torchnep_step` and `neppo_step` each turn all frames of an extended XYZ file
into one fixed batch, prepared and on the device, and return a function without
arguments that runs one whole training step on it: predicted energies, forces
and (where labelled) virials, loss, backward pass, gradient clipping where the
program clips by default, optimizer update. On an accelerator the function
returns when the step is queued; the caller synchronises. The step has been
warmed up when it is returned, so compiling or capturing a graph is not timed;
its attribute `info` says how it runs and how large the batch is.

`available()` names the programs that are installed. They are imported only
when used, and nothing here needs them to be present.

    python scripts/bench_peers.py TRAIN.xyz NEP.IN --frames 20 --threads 2
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

MODEL_KEYWORDS = (
    "type",
    "version",
    "zbl",
    "cutoff",
    "n_max",
    "basis_size",
    "l_max",
    "neuron",
)
LOSS_WEIGHTS = {"lambda_e": "1", "lambda_f": "1", "lambda_v": "1"}
NUMBER_OF_WARMUPS = 5

Step = Callable[[], None]
NepIn = Path | str | Mapping[str, object]


def available() -> dict[str, Callable[..., Step]]:
    """The installed programs, each with the function that prepares its step."""
    makers = {"torchnep": torchnep_step, "neppo": neppo_step}
    return {
        name: maker for name, maker in makers.items() if importlib.util.find_spec(name) is not None
    }


def read_keywords(nep_in: NepIn) -> dict[str, str]:
    """Keywords and their values as text, from a nep.in file or a mapping."""
    if isinstance(nep_in, Mapping):
        return {
            key: value
            if isinstance(value, str)
            else " ".join(map(str, value))
            if isinstance(value, (list, tuple))
            else str(value)
            for key, value in nep_in.items()
        }
    keywords = {}
    for line in Path(nep_in).read_text().splitlines():
        words = line.split("#", 1)[0].split()
        if words:
            keywords[words[0]] = " ".join(words[1:])
    return keywords


def model_keywords(nep_in: NepIn) -> dict[str, str]:
    """What defines the model, and the weights of the loss (1 where absent).

    The other keywords of a stock nep.in concern the length of a run or another
    optimizer, and torchnep refuses them.
    """
    given = read_keywords(nep_in)
    if "type" not in given:
        raise ValueError("nep.in lacks the keyword 'type'")
    chosen = {key: given[key] for key in MODEL_KEYWORDS if key in given}
    chosen.update({key: given.get(key, value) for key, value in LOSS_WEIGHTS.items()})
    return chosen


def floating_type(precision) -> torch.dtype:
    if isinstance(precision, torch.dtype):
        return precision
    return {"float32": torch.float32, "float64": torch.float64}[precision]


def warmed_up(step: Step, device: torch.device, info: dict, start: float) -> Step:
    for _ in range(NUMBER_OF_WARMUPS):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    info["setup_s"] = round(time.perf_counter() - start, 3)
    step.info = info
    return step


# torchnep


def torchnep_step(
    frames_xyz: Path,
    nep_in: NepIn,
    device: str,
    precision="float32",
    *,
    mode: str = "auto",
    collate: bool = False,
) -> Step:
    """One step of torchnep on all frames, with analytical forces.

    mode is 'eager', 'compiled' or 'auto', which is torchnep's own choice:
    compiled on a GPU and eager on the CPU. With collate the step also does
    what torchnep does for every batch on the training thread, the copy to the
    device and the basis functions of all pairs; without it (the default, and
    the kinder one) they are computed once.
    """
    from torchnep.data import parse_nep_in, read_xyz
    from torchnep.model import NEPModel
    from torchnep.ops import resolve_backend
    from torchnep.train import StreamDataStore, compute_q_scaler, preprocess_structures

    start = time.perf_counter()
    where = torch.device(device)
    dtype = floating_type(precision)
    if mode == "auto":
        mode = "eager" if where.type == "cpu" else "compiled"
    if mode not in ("eager", "compiled"):
        raise ValueError(f"mode must be auto, eager or compiled, not {mode!r}")
    compiled = mode == "compiled"

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nep.in")
        path.write_text(
            "".join(f"{key} {value}\n" for key, value in model_keywords(nep_in).items())
        )
        config = parse_nep_in(str(path))
    frames = read_xyz(str(frames_xyz))
    for frame in frames:
        # Without any forces torchnep would leave out half of the step.
        frame.setdefault("energy", 0.0)
        frame.setdefault("forces", frame["positions"] * 0.0)
    number_type = torch.empty(0, dtype=dtype).numpy().dtype.type
    store = StreamDataStore(
        preprocess_structures(frames, config, number_type, n_workers=1), where, dtype, config=config
    )

    torch.manual_seed(0)
    model = NEPModel(config).to(dtype).to(where)
    model.b1.requires_grad_(False)  # solved in closed form once an epoch
    per_atom = [energy / count for energy, count in zip(store.energy, store.natoms)]
    with torch.no_grad():
        model.b1.fill_(-statistics.fmean(per_atom))
    choose = {"num_types": model.num_types, "device_type": where.type}
    model.set_q_scaler(*compute_q_scaler(model, store, backend=resolve_backend("auto", **choose)))
    backend = resolve_backend("auto", use_compile=compiled, **choose)
    model.train()
    core = None
    if compiled:
        core = torch.compile(model._cached_core, dynamic=True)
        store.compile_basis()

    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(
        trained,
        lr=config["lr"],
        weight_decay=config["weight_decay"],
        amsgrad=True,
        fused=where.type == "cuda",
    )
    indices = list(range(store.n))
    fixed = store.collate(indices)
    with_virial = store.has_virial
    voigt = torch.tensor([0, 4, 8, 1, 5, 6], device=where)
    weights = [config[key] for key in LOSS_WEIGHTS]

    def loss_of(batch):
        predicted = model.compute_properties_cached(
            batch, need_forces=True, need_virial=with_virial, backend=backend, core_fn=core
        )
        atoms = batch["natoms"]
        share = batch["weight"] * batch["energy_mask"]
        error = (predicted["Etot"] - batch["energy"]) / atoms
        loss = weights[0] * (share * error.square()).sum() / batch["energy_mask"].sum()

        mask = batch["force_mask"]
        share = (batch["weight"][batch["struct_idx"]] * mask).unsqueeze(1)
        error = predicted["forces"] - batch["forces"]
        loss = loss + weights[1] * (share * error.square()).sum() / (3 * mask.sum())

        if with_virial:
            mask = batch["virial_mask"]
            total = torch.zeros_like(batch["virial"]).index_add(
                0, batch["struct_idx"], predicted["virial"]
            )
            error = ((total - batch["virial"]) / atoms.unsqueeze(1))[:, voigt]
            share = (batch["weight"] * mask).unsqueeze(1)
            loss = loss + weights[2] * (share * error.square()).sum() / (6 * mask.sum())
        return loss

    def step() -> None:
        loss = loss_of(store.collate(indices) if collate else fixed)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, config["max_grad_norm"])
        step.loss = loss.detach()
        if where.type == "cuda":
            # A fused update skips a step that is not finite by itself.
            optimizer.found_inf = (~torch.isfinite(norm)).to(torch.float32)
        elif not torch.isfinite(norm):
            return
        optimizer.step()

    info = {
        "program": "torchnep",
        "mode": mode,
        "backend": backend,
        "frames": store.n,
        "atoms": fixed["N"],
        "radial_pairs": fixed["pair_i_rad"].numel(),
        "angular_pairs": fixed["pair_i_ang"].numel(),
        "virial": with_virial,
        "parameters": sum(value.numel() for value in trained),
    }
    return warmed_up(step, where, info, start)


# neppo


def neppo_step(frames_xyz: Path, nep_in: NepIn, device: str, precision="float32") -> Step:
    """One step of neppo on all frames, as its Trainer takes it.

    That is eager on the CPU, where neppo has no other mode, and a replay of a
    CUDA graph of the whole step on a GPU.
    """
    from ase.io import read
    from neppo import StructureContainer, Trainer
    from neppo.nep_in import get_loss, get_model

    start = time.perf_counter()
    where = torch.device(device)
    settings = {key: value.split() for key, value in model_keywords(nep_in).items()}
    structures = read(str(frames_xyz), ":", format="extxyz")
    for structure in structures:
        complete(structure)

    previous = torch.get_default_dtype()
    torch.set_default_dtype(floating_type(precision))
    try:
        torch.manual_seed(0)
        model = get_model(settings)
        container = StructureContainer(model, structures)
        trainer = Trainer(
            model, get_loss(settings), container, batch_size=len(container), device=device, seed=0
        )
    finally:
        torch.set_default_dtype(previous)
    # Trainer.train() would end each call with an evaluation of the whole set,
    # so the step that it repeats is called by itself.
    (batch, targets), has_bec = trainer._batches[0], trainer._batch_has_bec[0]

    def step() -> None:
        step.loss = trainer._take_step(batch, targets, has_bec)[0]

    graphs = container._get_graphs()
    info = {
        "program": "neppo",
        "mode": "CUDA graph" if trainer.use_cuda_graph else "eager",
        "frames": len(container),
        "atoms": container.n_atoms,
        "radial_pairs": sum(graph.edge_index.shape[1] for graph in graphs),
        "angular_pairs": sum(graph.n_angular_edges for graph in graphs),
        "virial": bool(targets.has_virial.any()),
        "parameters": sum(value.numel() for value in model.parameters()),
    }
    return warmed_up(step, where, info, start)


def complete(structure) -> None:
    """Gives ASE atoms the labels that neppo insists on, under the names it reads."""
    results = dict(structure.calc.results) if structure.calc is not None else {}
    labels = {key.lower(): key for key in structure.info}
    arrays = {key.lower(): key for key in structure.arrays}
    if "energy" not in results and "energy" not in labels:
        structure.info["energy"] = 0.0
    if "forces" not in results and "forces" not in arrays:
        structure.arrays["forces"] = (
            structure.arrays[arrays["force"]] if "force" in arrays else structure.positions * 0.0
        )


# Timing


def first_frames(source: Path, count: int, target: Path) -> int:
    """Copies the first frames of an extended XYZ file; returns how many there were."""
    copied = 0
    with open(source) as lines, open(target, "w") as out:
        while copied < count and (head := next(lines, "")).strip():
            out.write(head)
            out.writelines(itertools.islice(lines, int(head) + 1))
            copied += 1
    return copied


def time_rounds(
    steps: Mapping[str, Step], device: str, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Milliseconds of single steps, the programs taking turns in every round."""
    synchronise = torch.cuda.synchronize if torch.device(device).type == "cuda" else None
    times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            end = time.perf_counter() + seconds
            while True:
                begin = time.perf_counter()
                step()
                if synchronise is not None:
                    synchronise()
                now = time.perf_counter()
                times[name].append(1e3 * (now - begin))
                if now > end:
                    break
    return times


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("xyz", type=Path)
    parser.add_argument("nep_in", type=Path)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for one round of one program")
    parser.add_argument(
        "--all-modes",
        action="store_true",
        help="torchnep also compiled, and with its work for each batch",
    )
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")

    makers = available()
    if not makers:
        print("neither torchnep nor neppo is installed", file=sys.stderr)
        return 2
    variants = {name: (maker, {}) for name, maker in makers.items()}
    if options.all_modes and "torchnep" in makers:
        for mode in ("eager", "compiled"):
            for collate in (False, True):
                name = f"torchnep {mode}" + (" + collate" if collate else "")
                variants[name] = (torchnep_step, {"mode": mode, "collate": collate})
        del variants["torchnep"]
    with tempfile.TemporaryDirectory() as folder:
        xyz = Path(folder, "frames.xyz")
        first_frames(options.xyz, options.frames, xyz)
        steps = {
            name: maker(xyz, options.nep_in, options.device, options.precision, **extra)
            for name, (maker, extra) in variants.items()
        }
        load = [os.getloadavg()[0]]
        times = time_rounds(steps, options.device, options.rounds, options.seconds)
        load.append(os.getloadavg()[0])
    print(f"threads {torch.get_num_threads()}, load {load[0]:.2f} to {load[1]:.2f}")
    for name, values in times.items():
        print(
            f"{name:28} median {statistics.median(values):9.2f} ms   "
            f"min {min(values):9.2f} ms   {len(values)} steps   "
            f"loss {float(steps[name].loss):.4g}   {json.dumps(steps[name].info)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
