"""A file is the old one or the new one, whole, whatever happens during the write."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from shares import environment

from nepkit.errors import UserError
from nepkit.files import write_atomically

OLD = "the old file\n"


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "nep.txt"
    path.write_text(OLD)
    return path


def only_the_old_file(target: Path) -> bool:
    return os.listdir(target.parent) == [target.name] and target.read_text() == OLD


TEXT = "Å\n"


@pytest.mark.parametrize("data", [TEXT, TEXT.encode(), lambda file: file.write(TEXT.encode())])
def test_writes_text_bytes_and_what_a_function_writes(target, data):
    write_atomically(target, data)
    assert target.read_bytes() == TEXT.encode()
    assert os.listdir(target.parent) == [target.name]


def test_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "nep.txt", "new")
    assert (tmp_path / "nep.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_link_stays_and_its_file_is_replaced(tmp_path, target):
    link = tmp_path / "link.txt"
    link.symlink_to(target.name)
    write_atomically(link, "new")
    assert link.is_symlink() and target.read_text() == "new"


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
@pytest.mark.parametrize(
    "code, words",
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only: write to another folder"),
        (errno.EACCES, "permission denied: change the permissions"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_system_errors_leave_the_old_file(target, monkeypatch, step, code, words):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    owner = {"open": "builtins", "fsync": "os", "replace": "os"}[step]
    with monkeypatch.context() as patch:
        patch.setattr(f"{owner}.{step}", fail)
        with pytest.raises(UserError) as caught:
            write_atomically(target, "new")
    assert str(caught.value).startswith(f"{target}: cannot be written: ")
    assert words in str(caught.value)
    assert only_the_old_file(target)


def test_disk_full_inside_the_function(target):
    def fill(file):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match="disk is full"):
        write_atomically(target, fill)
    assert only_the_old_file(target)


def test_disk_full_hidden_in_a_runtime_error(target):
    def fill(file):
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            raise RuntimeError("unexpected pos 704 vs 598")  # as torch.save does

    with pytest.raises(UserError, match="disk is full"):
        write_atomically(target, fill)
    assert only_the_old_file(target)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_other_errors_pass_through(target, error):
    def stop(file):
        file.write(b"half of it")
        raise error

    with pytest.raises(type(error)):
        write_atomically(target, stop)
    assert only_the_old_file(target)


def test_read_only_file_is_not_replaced(target, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(UserError, match="permission denied"):
        write_atomically(target, "new")
    assert only_the_old_file(target)


def test_missing_folder_and_folder_as_target(tmp_path):
    with pytest.raises(UserError, match="its folder does not exist"):
        write_atomically(tmp_path / "missing" / "nep.txt", "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="it is a folder"):
        write_atomically(tmp_path / "folder", "new")
    assert os.listdir(tmp_path) == ["folder"]


def test_folder_that_cannot_be_synced_is_no_error(target, monkeypatch):
    system_open = os.open

    def refuse_folders(path, *arguments, **named):
        if os.path.isdir(path):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return system_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse_folders)
    write_atomically(target, "new")
    assert target.read_text() == "new"


def test_killed_in_the_middle_of_writing(target):
    program = (
        "import sys, time\n"
        "from nepkit.files import write_atomically\n"
        "def half(file):\n"
        "    file.write(b'half of the new file')\n"
        "    file.flush()\n"
        "    print('written', flush=True)\n"
        "    time.sleep(60)\n"
        "write_atomically(sys.argv[1], half)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(target)],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    with writer:
        assert writer.stdout.readline() == b"written\n"
        writer.send_signal(signal.SIGKILL)
    assert target.read_text() == OLD
    write_atomically(target, "new")  # what the killed process left does not stand in the way
    assert target.read_text() == "new"
