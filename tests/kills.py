"""A program that trains by several processes and kills them; run by test_kills.py.

    python kills.py STRAIGHT BROKEN SIZE WORD ...

trains the first folder to its end by SIZE processes, then the second one again and again: words
``rank:S``, ``all:S`` kill one process or all after S seconds (from its beginning anew if it has
ended by then), ``save:N`` the first one in the middle
of its write of the N-th checkpoint, ``full`` and ``read-only`` put the folder on a disk without
room, and on one that cannot be written to. Prints what was seen as JSON.
"""

import atexit
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from nepkit import cli, files, train_nep
from nepkit.train import checkpoint

# Seconds after which a launcher asks the rest to end, and kills them: torchrun asks at once.
ASKED, KILLED = 4.0, 34.0
# Of everything that a run writes, what it does not write again bit by bit.
INPUTS = ("nep.in", "train.xyz", "test.xyz")


def start(folder: Path, size: int, prepare=lambda: None) -> list[int]:
    """Processes that train together, ``prepare`` called in the first; forked, so that they need
    not import torch."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(size):
        if (child := os.fork()) == 0:
            place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
            os.environ.update({k: str(v) for k, v in place.items()}, MASTER_ADDR="127.0.0.1")
            code = 70
            try:
                with open(HERE / f"said-{rank}.txt", "w") as out:
                    os.dup2(out.fileno(), 1)
                    os.dup2(out.fileno(), 2)
                if rank == 0:
                    prepare()
                code = cli.main(["train", str(folder), "--device", "cpu"])
                sys.stdout.flush()
                atexit._run_exitfuncs()
            finally:
                os._exit(code)
        children.append(child)
    return children


def ends(children: list[int]) -> list[int]:
    """Exit codes, minus the signal for those that were killed.

    As a launcher does, it asks the others to end once one has failed, and kills them in the end.
    """
    codes, failed, asked = {}, None, False
    while len(codes) < len(children):
        for child in set(children) - set(codes):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
        now = time.monotonic()
        failed = failed or (now if any(codes.values()) else None)
        late = 0.0 if failed is None else now - failed
        if late > ASKED and not asked or late > KILLED:
            asked = True
            for child in set(children) - set(codes):
                os.kill(child, signal.SIGKILL if late > KILLED else signal.SIGTERM)
        time.sleep(0.01)
    return [codes[child] for child in children]


def die_in_save(number: int):
    """Have this process kill itself in the middle of its write of a checkpoint."""
    save, write, left = checkpoint.save, files._write_and_sync, [number]

    def half(path, data):
        path.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(*arguments):
        left[0] -= 1
        files._write_and_sync = half if left[0] == 0 else write
        save(*arguments)

    checkpoint.save = wrapped


def look(folder: Path) -> int:
    """Steps of the checkpoint, -1 without one; raises if anything is damaged or torn."""
    for name, columns in (("loss.out", 10), ("history.csv", 11)):
        if (path := folder / name).exists() and (text := path.read_text()):
            assert text.endswith("\n"), f"{name} is torn"
            rows = [row.replace(",", " ").split() for row in text.splitlines()]
            assert {len(row) for row in rows} == {columns}, name
    if (log := folder / "nepkit.log").exists():
        assert log.read_text()[-1:] in ("", "\n"), "the log is torn"
    state = checkpoint.load(folder)
    return -1 if state is None else state["done"]


def on_a_disk(folder: Path, size: int, word: str) -> list[int]:
    """Train where the disk gets full, or cannot be written to any more; the files come back."""
    disk, aside = folder.parent / "disk", folder.parent / "aside"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    there = disk / folder.name
    shutil.copytree(folder, there)
    if word == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    else:
        shutil.copytree(folder, aside)
        children = start(aside, size)  # how much there is to write
        ends(children)
        more = sum(p.stat().st_size for p in aside.iterdir()) // 3
        used = shutil.disk_usage(disk).used
        (disk / "filler").write_bytes(bytes((16 << 20) - used - more // 4096 * 4096))
        shutil.rmtree(aside)
    codes = ends(start(there, size))
    look(there)
    shutil.rmtree(folder)
    shutil.copytree(there, folder)
    subprocess.run(["umount", str(disk)], check=True)
    return codes


def main(straight: Path, broken: Path, size: int, words: list[str]):
    seen = []
    # Loads the kernels, once for all.
    train_nep(straight, out=straight.parent / "first", device="cpu", generation=1)
    assert ends(start(straight, size)) == [0] * size
    for word in words:
        kind, _, number = word.partition(":")
        if not number:
            codes = on_a_disk(broken, size, word)
            first = 0.0
        else:
            prepare = (lambda: die_in_save(int(number))) if kind == "save" else (lambda: None)
            children = start(broken, size, prepare)
            if kind != "save":
                time.sleep(float(number))
                chosen = children if kind == "all" else [random.Random(word).choice(children)]
                for child in chosen:
                    os.kill(child, signal.SIGKILL)
            first = time.monotonic()
            codes = ends(children)
        said = "".join((HERE / f"said-{r}.txt").read_text() for r in range(size))
        last_words = sum(
            line.startswith("nepkit: ") and "processes" not in line for line in said.splitlines()
        )
        done = look(broken)
        seen.append([word, codes, time.monotonic() - first, done, last_words])
        if codes == [0] * size:  # whoever was to be killed came too late: begin anew
            check_same(straight, broken)
            for path in broken.iterdir():
                if path.name not in INPUTS:
                    path.unlink()
    assert ends(start(broken, size)) == [0] * size
    print(json.dumps(seen))


def check_same(straight: Path, broken: Path):
    """Equal results, bit by bit."""
    for name in ("nep.txt", "nep_best.txt", "nep.restart", "loss.out", "energy_train.out"):
        assert (straight / name).read_bytes() == (broken / name).read_bytes(), name


if __name__ == "__main__":
    HERE = Path(sys.argv[1]).parent
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
