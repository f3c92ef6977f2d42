"""Who may write into a folder, and what happens to which files."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from shares import environment

from nepkit.errors import UserError
from nepkit.train.folder import LOCK, MANIFEST, OutputFolder


def write(folder: Path, *names: str, text: str = "ours\n"):
    """A run that writes files of these names."""
    with OutputFolder(folder) as out:
        out.claim(names)
        for name in names:
            (folder / name).write_text(text)


def killed(folder: Path, *names: str):
    """The same, without the end of the run."""
    out = OutputFolder(folder).__enter__()
    out.claim(names)
    for name in names:
        (folder / name).write_text("half\n")
    out._lock.close()


def test_files_of_others_are_refused(tmp_path):
    (tmp_path / "nep.txt").write_text("GPUMD's\n")
    with OutputFolder(tmp_path) as out, pytest.raises(UserError) as caught:
        out.claim(["loss.out", "nep.txt"])
    assert str(tmp_path / "nep.txt") in str(caught.value) and "--out" in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["nep.txt", LOCK]


def test_a_dangling_link_belongs_to_somebody(tmp_path):
    (tmp_path / "nep.txt").symlink_to("elsewhere")
    with OutputFolder(tmp_path) as out, pytest.raises(UserError, match="not written by nepkit"):
        out.claim(["nep.txt"])


def test_ours_may_be_written_again(tmp_path):
    write(tmp_path, "nep.txt")
    write(tmp_path, "nep.txt", "loss.out", text="new\n")
    with OutputFolder(tmp_path) as out:
        assert out.unchanged(["nep.txt", "loss.out"])


def test_a_file_put_over_ours_is_refused(tmp_path):
    write(tmp_path, "nep.txt", "loss.out")
    (tmp_path / "nep.txt").write_text("GPUMD's\n")
    with OutputFolder(tmp_path) as out:
        assert not out.unchanged(["nep.txt"]) and out.unchanged(["loss.out"])
        for act in (lambda: out.claim(["nep.txt"]), lambda: out.move_to_previous("nep.txt")):
            with pytest.raises(UserError, match="changed since nepkit wrote it"):
                act()
    assert (tmp_path / "nep.txt").read_text() == "GPUMD's\n"
    with OutputFolder(tmp_path) as out:
        out.claim(["loss.out"])


def test_a_removed_file_is_no_fault(tmp_path):
    write(tmp_path, "nep.txt", "loss.out")
    (tmp_path / "nep.txt").unlink()
    write(tmp_path, "nep.txt")


def test_a_claimed_name_that_was_never_written_is_nobodys(tmp_path):
    with OutputFolder(tmp_path) as out:
        out.claim(["nep.txt"])
    (tmp_path / "nep.txt").write_text("GPUMD's\n")
    with OutputFolder(tmp_path) as out, pytest.raises(UserError, match="not written by nepkit"):
        out.claim(["nep.txt"])


def test_after_a_kill_our_half_files_are_ours(tmp_path):
    write(tmp_path, "nep.txt")
    killed(tmp_path, "nep.txt", "loss.out")
    with OutputFolder(tmp_path) as out:
        assert not out.unchanged(["nep.txt"])
    write(tmp_path, "nep.txt", "loss.out")


def test_leftovers_of_our_names_are_removed(tmp_path):
    for name in ("nep.txt.0123abcd.tmp", "his.txt.0123abcd.tmp", "nep.txt.012.tmp"):
        (tmp_path / name).write_text("")
    (tmp_path / f"{MANIFEST}.01234567.tmp").write_text("")
    write(tmp_path, "nep.txt")
    assert sorted(p.name for p in tmp_path.glob("*.tmp")) == [
        "his.txt.0123abcd.tmp", "nep.txt.012.tmp",
    ]  # fmt: skip


def test_old_runs_are_numbered(tmp_path):
    with OutputFolder(tmp_path) as out:
        assert out.move_to_previous("a") is None
    (tmp_path / "previous-7").mkdir()
    (tmp_path / "train.xyz").write_text("data\n")
    write(tmp_path, "a", "b")
    with OutputFolder(tmp_path) as out:
        assert out.move_to_previous("a") == tmp_path / "previous-8"
        out.claim(["a"])
    moved = sorted(p.name for p in (tmp_path / "previous-8").iterdir())
    assert moved == ["a", "b", MANIFEST]
    left = sorted(p.name for p in tmp_path.iterdir() if p.is_file())
    assert left == [LOCK, MANIFEST, "train.xyz"]


def test_a_move_cut_short_keeps_the_last_file(tmp_path, monkeypatch):
    write(tmp_path, "a", "checkpoint.pt", "z")
    replace, calls = os.replace, []

    def fail_at_third(source, target):
        calls.append(source)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with OutputFolder(tmp_path) as out, monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail_at_third)
        with pytest.raises(UserError, match="No space left"):
            out.move_to_previous("checkpoint.pt")
    assert (tmp_path / "checkpoint.pt").exists()
    with OutputFolder(tmp_path) as out:
        assert out.move_to_previous("checkpoint.pt") == tmp_path / "previous-2"


def test_second_run_is_refused(tmp_path):
    with OutputFolder(tmp_path), pytest.raises(UserError, match="another run is at work here"):
        OutputFolder(tmp_path).__enter__()
    with OutputFolder(tmp_path):
        pass


def test_lock_dies_with_its_process(tmp_path):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from nepkit.train.folder import OutputFolder\n"
        "with OutputFolder(Path(sys.argv[1])):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match="another run"):
            OutputFolder(tmp_path).__enter__()
        holder.send_signal(signal.SIGKILL)
    with OutputFolder(tmp_path):
        pass


def test_file_system_without_locks(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    write(tmp_path, "nep.txt")


def test_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--out"):
        OutputFolder(tmp_path / "file").__enter__()

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        with pytest.raises(UserError, match="Read-only file system"):
            OutputFolder(tmp_path / "new").__enter__()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"other": {}}'])
def test_damaged_manifest(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(UserError, match=f"{MANIFEST}: damaged"):
        OutputFolder(tmp_path).__enter__()
    (tmp_path / MANIFEST).unlink()
    with OutputFolder(tmp_path):  # the lock was let go
        pass


def test_full_disk_at_the_end_hides_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise UserError("full")

    with pytest.raises(ZeroDivisionError), OutputFolder(tmp_path) as out:
        out.claim(["nep.txt"])
        (tmp_path / "nep.txt").write_text("half")
        monkeypatch.setattr("nepkit.train.folder.write_atomically", full)
        raise ZeroDivisionError
    monkeypatch.undo()
    write(tmp_path, "nep.txt")
