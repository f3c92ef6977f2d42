"""Whatever ends a run of several processes: the same command goes on to the same result."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shares import environment, odd_run
from test_resume import assert_same_run

LONG = {"generation": 200, "output_interval": 40}


def kill(top: Path, size: int, words: list[str], *prefix: str, timeout: int, **changes) -> list:
    """What was seen while ``words`` (see kills.py) happened to a run that then ends as another."""
    straight, broken = (odd_run(top / name, **changes) for name in ("straight", "broken"))
    program = [sys.executable, str(Path(__file__).with_name("kills.py"))]
    done = subprocess.run(
        [*prefix, *program, str(straight), str(broken), str(size), *words], capture_output=True,
        text=True, timeout=timeout, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_run(straight, broken)
    assert not list(broken.glob("*.tmp"))
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_processes(tmp_path):
    ((_, codes, seconds, done, said),) = kill(tmp_path, 2, ["save:2"], timeout=100)
    # The one in its save is gone, the other says so, once; the checkpoint before is whole.
    assert codes == [-9, 1] and seconds < 60 and done == 5 and said == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_killed_at_random_moments(tmp_path, size):
    chance, words = random.Random(size), []
    for number in range(30):
        kind = chance.choice(["rank", "all", "save"])
        moment = chance.randint(1, 4) if kind == "save" else round(chance.uniform(0, 4), 3)
        words.append(f"{kind}:{moment}")
    seen = kill(tmp_path, size, words, timeout=1500, **LONG)
    print("\n".join(map(str, seen)))
    for word, codes, seconds, _, said in seen:
        # SIGTERM ends those that still wait for the killed one to join. Without torchrun the first
        # process keeps what they agree by on who speaks, and on a busy machine two may.
        assert seconds < 60 and set(codes) <= {-9, -15, 0, 1, 3} and said <= 2, (word, codes, said)
    assert sum(-9 in codes for _, codes, *_ in seen) >= 10
    assert len({done for *_, done, _ in seen}) >= 4


def mounts() -> bool:
    unshare = shutil.which("unshare")
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        bool(unshare) and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.slow
def test_full_and_read_only_disks(tmp_path):
    if not mounts():
        pytest.skip("no disk can be mounted here")
    words = ["save:2", "read-only", "full", "read-only"]
    seen = kill(tmp_path, 2, words, "unshare", "-rm", timeout=300)
    for word, codes, _, done, said in seen[1:]:
        # A mistake of all, or of the first, with which the others lose contact, unless all but the
        # parity plot was written.
        assert codes[0] == 2 and set(codes) <= {0, 1, 2} and said == 1, (word, codes, said)
        assert done >= 5
