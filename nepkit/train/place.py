"""Which of several processes this one is, as its launcher says: torchrun, or SLURM's srun."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

# MASTER_PORT where SLURM started the processes: one of so many from the first, by the job.
PORTS = range(20000, 50000)
# How many times torchrun has started the processes again.
RESTARTS = "TORCHELASTIC_RESTART_COUNT"


class Place(NamedTuple):
    """Which process this is, as its launcher says."""

    rank: int
    size: int
    local: int  # rank among those of this machine
    master: str  # host of rank 0, empty where the environment has it already
    port: int


def place() -> Place | None:
    """The place that torchrun or SLURM's srun gave this process; None where it runs alone."""
    environment = os.environ
    if "RANK" in environment and "WORLD_SIZE" in environment:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        local = int(environment.get("LOCAL_RANK", 0))
    elif "SLURM_PROCID" in environment and "SLURM_NTASKS" in environment:
        # In a batch script itself, which srun did not start, there is no step.
        if "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment:
            return None
        rank = int(environment["SLURM_PROCID"])
        size = int(environment.get("SLURM_STEP_NUM_TASKS", environment["SLURM_NTASKS"]))
        local = int(environment.get("SLURM_LOCALID", 0))
    else:
        return None
    master = port = None
    if "MASTER_ADDR" not in environment:
        nodes = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST", ""))
        master = first_host(nodes) or "127.0.0.1"
    if "MASTER_PORT" not in environment:
        job = int(environment.get("SLURM_JOB_ID", 0))
        port = PORTS[(job * 7 + int(environment.get("SLURM_STEP_ID", 0))) % len(PORTS)]
    return Place(
        rank, size, local, master or environment["MASTER_ADDR"],
        port or int(environment["MASTER_PORT"]),
    )  # fmt: skip


def processes_here() -> int:
    """How many processes of the run share this machine."""
    if place() is None:
        return 1
    told = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLURM_STEP_TASKS_PER_NODE", "1")
    return int(re.match(r"\d+", told)[0])


def launcher() -> str | None:
    """Which torchrun started this process, in this attempt or an earlier one; None without."""
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if run is None else f"{run} {os.getppid()}"


def first_host(nodes: str) -> str:
    """The first name of a SLURM list of nodes, as of ``nid[0012-0015,0020],gpu1``."""
    match = re.match(r"([^,\[]*)(?:\[([^,\-\]]+)[^\]]*\])?([^,\[]*)", nodes)
    return "".join(part or "" for part in match.groups())
