"""Training by several processes together, one a GPU, started by torchrun or SLURM."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import UserError
from .device import check_force_mode, choose_device, precision_type
from .outputs import Errors
from .place import place
from .profiling import check_profile
from .run import train
from .signals import Interrupted
from .start import Setup
from .stop import check_max_time
from .tensorboard import check_tensorboard
from .world import joined


def own_device(name: str) -> torch.device:
    """The device of this process: a GPU for each where there are any.

    SLURM and ROCR_VISIBLE_DEVICES may show each process its own GPU alone; otherwise processes of
    a machine count through what they all see.
    """
    found = place()
    if found is None or name == "cpu":
        return choose_device(name)
    if name not in ("auto", "cuda"):
        raise UserError(
            f"device {name}: several processes take a GPU each; give cuda, cpu or auto, and choose "
            "GPUs by CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES"
        )
    count = torch.cuda.device_count()
    if count == 0:
        return choose_device(name)
    if 1 < count <= found.local:
        error = UserError(f"process {found.local} of this machine has no GPU: there are {count}")
        error.told = found.local > count  # the first without one tells it
        raise error
    return choose_device(f"cuda:{found.local if count > 1 else 0}")


def train_nep_sharded(
    run_dir: str | os.PathLike,
    *,
    out: str | os.PathLike | None = None,
    device: str = "auto",
    precision: str = "float32",
    force_mode: str = "analytic",
    seed: int | None = None,
    restart: bool = False,
    profile: int | None = None,
    tensorboard: bool = False,
    max_time: str | float | None = None,
    **nep_in,
) -> dict[str, Errors]:
    """Train as train_nep does, by all processes that torchrun or SLURM has started.

    Every process calls this with the same arguments, those of train_nep; ``device`` auto gives each
    a GPU, ``cpu`` none. Batches are those of the whole run, ``batch 64`` means 64 frames for all
    processes together, and the gradient is that of the whole batch. The first process writes and
    shows. All return the same errors, and all raise Interrupted after the same step.

    Raises:
        UserError: as train_nep.
        Interrupted: as train_nep.
        LostContact: another process has ended.
    """
    own = own_device(device)
    setup = Setup(
        Path(run_dir), own, precision_type(precision), check_force_mode(force_mode),
        check_profile(profile), check_tensorboard(tensorboard), end=check_max_time(max_time),
    )  # fmt: skip
    with joined(own) as world:
        overrides = nep_in if seed is None else {"seed": seed, **nep_in}
        try:
            return train(replace(setup, world=world), out, restart, overrides)
        except Interrupted as interrupted:
            # Launchers end all processes when one has gone: nobody goes before all is written.
            world.gather(None)
            interrupted.release()
            raise
