"""Programs run by torchrun, and run directories whose batches do not come out even."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from run_files import make_run, random_frames

import nepkit

ROOT = str(Path(nepkit.__file__).parents[1])
# Three stages of ten steps: uneven shares, one frame alone, and the other form of the loss.
STAGES = "stage\nbatch 1\nstage\nbatch 5\nloss_form rmse\nlambda_1 0.01\n"
SETTINGS = {"generation": 10, "batch": 3, "output_interval": 5, "lambda_v": 0.5}


def odd_run(folder: Path, **changes) -> Path:
    """Frames of which some lack energy, forces or virial, for batches of 3, 1 and 5."""
    frames = random_frames(11)
    lacking = {1: "energy", 3: "forces", 4: "virial", 5: "virial", 8: "energy", 9: "forces"}
    for place, label in lacking.items():
        frames[place] = replace(frames[place], **{label: None})
    frames[2] = replace(frames[2], extra="weight=2 energy_weight=0.5")
    return make_run(folder, frames, random_frames(3, 60), STAGES, **{**SETTINGS, **changes})


def environment(**more: str) -> dict[str, str]:
    """That of a process which finds the package and computes on one thread."""
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def torchrun(count: int, *words: str | Path, check: bool = True, options=(), timeout=400):
    """``count`` processes of ``python *words``; the outcome, with what they print."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(count), *options, *map(str, words),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.terminate()  # which ends its processes too
        process.communicate()
    assert not check or process.returncode == 0, out + err
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def processes(count: int, *words: str | Path, timeout=400):
    """The same without torchrun: its variables alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    command = [sys.executable, *map(str, words)]
    started = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), **place),
        )
        for rank in range(count)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=timeout)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert not any(process.returncode for process in started), "\n".join(said)
