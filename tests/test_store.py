"""The store on disk: equal to what is prepared in memory, and never taken for another."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import fields, replace

import h5py
import numpy as np
import pytest
import torch
from shares import environment
from structures import TWO, model_settings, odd_frames

from nepkit import files
from nepkit.data import storing, workers
from nepkit.data.block import ARRAYS
from nepkit.data.known import Labels
from nepkit.data.prepared import Surroundings, prepare
from nepkit.data.storing import open_store
from nepkit.data.xyz import check_elements, read_xyz
from nepkit.errors import UserError
from nepkit.info import describe
from nepkit.units import ELEMENTS

SETTINGS = model_settings(TWO, radial=(5.0, 4.5), angular=(3.5, 4.0))


def text_of(frame) -> str:
    """A frame as extended XYZ."""
    columns = "species:S:1:pos:R:3" + ":force:R:3" * (frame.forces is not None)
    items = [f"Properties={columns}", f"weight={frame.weight}", f'config_type="{frame.source}"']
    if frame.cell.any():
        items.append(f'Lattice="{" ".join(map(repr, frame.cell.ravel().tolist()))}"')
    items.append(f'pbc="{" ".join("FT"[int(p)] for p in frame.pbc)}"')
    if frame.energy is not None:
        items.append(f"energy={frame.energy}")
    if frame.virial is not None:
        items.append(f'virial="{" ".join(map(repr, frame.virial.ravel().tolist()))}"')
    table = frame.positions if frame.forces is None else np.hstack([frame.positions, frame.forces])
    rows = [
        " ".join([ELEMENTS[number - 1], *map(repr, row)])
        for number, row in zip(frame.numbers, table.tolist())
    ]
    return "\n".join([str(len(frame)), " ".join(items), *rows, ""])


@pytest.fixture
def source(tmp_path):
    """Frames of all kinds, some without labels, of two sources."""
    frames = [
        replace(
            frame, source=f"set {number % 2}", energy=None if number == 3 else -1.5 * number,
            forces=None if number % 3 == 1 else 0.1 * frame.positions, weight=1 + number / 8,
            virial=np.eye(3) * number if number > 4 else None,
        )
        for number, frame in enumerate([*odd_frames(TWO, seed=1).values(), *odd_frames(TWO).values()])
    ]  # fmt: skip
    path = tmp_path / "train.xyz"
    path.write_text("".join(map(text_of, frames)))
    return path


def opened(source, said=None, **options):
    return open_store(source, SETTINGS, tell=(said if said is not None else []).append, **options)


def assert_same(found, wanted):
    """Two Prepared, bit by bit."""
    for name in ("offsets", "counts", *ARRAYS):
        a, b = getattr(found.structures, name), getattr(wanted.structures, name)
        assert np.array_equal(a, b), name
        assert np.asarray(a).dtype == np.asarray(b).dtype
    for kind, one, other in (
        (Labels, found.labels, wanted.labels),
        (Surroundings, found.surroundings, wanted.surroundings),
    ):
        for field in fields(kind):
            a, b = np.asarray(getattr(one, field.name)), np.asarray(getattr(other, field.name))
            equal_nan = a.dtype.kind == "f"
            assert np.array_equal(a, b, equal_nan=equal_nan) and a.dtype == b.dtype, field.name


def prepared_in_memory(source, chosen=None):
    frames = read_xyz(source)
    frames = frames if chosen is None else [frames[k] for k in chosen]
    return prepare(frames, SETTINGS, device="cpu", dtype=torch.float32)


def test_holds_what_is_prepared_in_memory(source):
    store = opened(source)
    assert_same(store.prepared(dtype=torch.float32), prepared_in_memory(source))
    assert store.pair_types.tolist() == [0, 1, 2, 3]
    assert store.bytes() == pytest.approx(prepared_in_memory(source).structures.bytes(), rel=0.05)


@pytest.mark.parametrize("piece", [1, 3000, 10**9])
def test_any_frames_in_any_order(source, piece, monkeypatch):
    monkeypatch.setattr(storing, "PIECE", piece)
    monkeypatch.setattr("nepkit.data.store.PIECE", piece)
    monkeypatch.setattr("nepkit.data.store.GAP", 1000)
    store = opened(source)
    n = len(store)
    for chosen in ([], [4], [n - 1, 0], range(n), range(0, n, 3), range(n)[::-1], [5, 2, 2, 9, 3]):
        chosen = np.array(chosen, np.int64)
        found = store.prepared(chosen, dtype=torch.float32).structures
        wanted = prepared_in_memory(source, chosen).structures if len(chosen) else found
        for name in ("offsets", "counts", *ARRAYS):
            assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
        labels = store.labels.take(chosen)
        assert labels.index.tolist() == chosen.tolist()
        assert np.array_equal(labels.n_atoms, found.counts[:, 0])
        assert np.array_equal(labels.types, found.types[:-1])


def test_is_used_again(source, monkeypatch):
    path = opened(source).path
    assert path.parent == source.parent
    stamp = path.stat()
    monkeypatch.setattr(storing, "prepared_pieces", None)
    said = []
    assert_same(opened(source, said).prepared(dtype=torch.float32), prepared_in_memory(source))
    assert said == [] and path.stat() == stamp


def test_a_changed_bit_is_noticed(source):
    store = open_store(source, SETTINGS)
    values = store._read("vectors", slice(3, 4))
    path = store.path
    store.close()
    content = bytearray(path.read_bytes())
    place = content.index(values.tobytes())
    content[place + 2] ^= 4
    path.write_bytes(content)
    damaged = open_store(source, SETTINGS)
    with pytest.raises(UserError, match=r"damaged \(vectors\); delete it, and it is made anew"):
        damaged.structures(dtype=torch.float64)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_made_anew(source, part):
    path = opened(source).path
    whole = path.read_bytes()
    os.truncate(path, int(part * len(whole)))
    said = []
    assert_same(opened(source, said).prepared(dtype=torch.float32), prepared_in_memory(source))
    assert len(said) == 1 and str(path) in said[0] and said[0].endswith("it is made anew")
    assert path.stat().st_size == len(whole)


def test_other_files_are_not_taken_for_it(source):
    path = opened(source).path

    def another_hdf5_file():
        with h5py.File(path, "w") as file:
            file["counts"] = [1, 2, 3]

    def another_format():
        with h5py.File(path, "r+") as file:
            file.attrs["nepkit"] = file.attrs["nepkit"].replace('"format": ', '"format": 9')

    def without_pairs():
        with h5py.File(path, "r+") as file:
            del file["vectors"]

    for spoil in (
        lambda: path.write_text("hello"),
        another_hdf5_file,
        another_format,
        without_pairs,
    ):
        spoil()
        said = []
        assert_same(opened(source, said).prepared(dtype=torch.float32), prepared_in_memory(source))
        assert len(said) == 1, said


def test_a_changed_source_is_seen(source):
    """Also with the size and the time of the old one."""
    opened(source)
    stamp = source.stat()
    text = source.read_text()
    changed = text.replace("energy=-6.0", "energy=-7.0", 1)
    assert changed != text
    source.write_text(changed)
    os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    said = []
    store = opened(source, said)
    assert -7.0 in store.labels.energy
    assert len(said) == 1 and "another content" in said[0]


def test_each_choice_of_cutoffs_has_its_own(source):
    other = replace(SETTINGS, radial_cutoff=(5.5, 5.0))
    first, second = opened(source), open_store(source, other)
    assert first.path != second.path
    assert second.counts[:, 2].sum() > first.counts[:, 2].sum()
    swapped = open_store(source, replace(SETTINGS, elements=TWO[::-1]))
    assert swapped.labels.types.tolist() == (1 - first.labels.types).tolist()


def test_mistakes_are_those_of_the_reader(source):
    text = source.read_text().replace("energy=-6.0", "energy=six", 1)
    source.write_text(text)
    with pytest.raises(UserError) as wanted:
        read_xyz(source)
    with pytest.raises(UserError, match="energy=six") as found:
        opened(source)
    assert str(found.value) == str(wanted.value)
    with pytest.raises(UserError, match="cannot be read"):
        opened(source.with_name("nothing.xyz"))
    assert [path.name for path in source.parent.iterdir()] == ["train.xyz"]


def test_what_cannot_lie_beside_the_source_lies_in_another_folder(source, tmp_path, monkeypatch):
    """As on a read-only file system, which root cannot have by permissions."""
    spare = tmp_path / "out"
    spare.mkdir()
    write = files._write_and_sync

    def refused(path, data):
        if path.parent == source.parent:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        write(path, data)

    monkeypatch.setattr(files, "_write_and_sync", refused)
    with pytest.raises(UserError, match="read-only"):
        opened(source)
    said = []
    for _ in range(2):
        store = opened(source, said, spare=spare)
        assert store.path.parent == spare
    assert said == [] and [path.name for path in spare.iterdir()] == [store.path.name]
    assert_same(store.prepared(dtype=torch.float32), prepared_in_memory(source))


# Builds a store where files can have so many bytes alone, as on a full disk.
FULL = """
import resource, signal, sys
from nepkit import UserError
from nepkit.config import ModelSettings
import nepkit
from nepkit import files
from nepkit.data import storing, workers
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
storing.PIECE = 2000
source, elements = sys.argv[1], tuple(sys.argv[2].split())
for size in map(int, sys.argv[3:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        storing.open_store(source, ModelSettings(elements, (5.0, 4.5), (3.5, 4.0)))
        print(size, "built")
    except UserError as error:
        print(size, error)
"""


def python(code, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], text=True, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are POSIX")
def test_a_full_disk_is_told_of_and_leaves_nothing(source):
    sizes = 0, 100, 3000, 50_000, 200_000, 10**8
    process = python(FULL, source, " ".join(TWO), *sizes)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err  # HDF5 can crash when the process ends
    lines = out.splitlines()
    assert lines[-1] == f"{sizes[-1]} built", out
    assert len(lines) == len(sizes) and all("cannot be written" in line for line in lines[:-1])
    assert len(list(source.parent.iterdir())) == 2
    said = []
    assert_same(opened(source, said).prepared(dtype=torch.float32), prepared_in_memory(source))
    assert said == []


# Builds a store by two workers, slowly.
SLOW = """
import sys, time
from nepkit.config import ModelSettings
import nepkit
from nepkit import files
from nepkit.data import storing, workers
storing.PIECE, storing.WORTH_A_WORKER = 1000, 2000
storing.processors = lambda: 2
add = storing.StoreWriter.add

def slow(*arguments):
    print("adding", flush=True)
    time.sleep(0.05)
    add(*arguments)

storing.StoreWriter.add = slow
storing.open_store(sys.argv[1], ModelSettings(tuple(sys.argv[2].split()), (5.0, 4.5), (3.5, 4.0)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_leaves_nothing_in_the_way(source, how):
    for pieces in (1, 3):
        process = python(SLOW, source, " ".join(TWO))
        for _ in range(pieces):
            assert process.stdout.readline() == "adding\n"
        process.send_signal(how)
        _, err = process.communicate(timeout=60)  # the workers hold its pipes until they end
        assert process.returncode != 0 and (how == signal.SIGINT or err == "")
        left = [path for path in source.parent.iterdir() if path != source]
        assert len(left) == (how == signal.SIGKILL) and all(p.suffix == ".tmp" for p in left)
    said = []
    assert_same(opened(source, said).prepared(dtype=torch.float32), prepared_in_memory(source))
    assert said == [] and len(list(source.parent.iterdir())) == 2


@pytest.mark.slow
def test_waits_for_another_process(source):
    process = python(SLOW, source, " ".join(TWO))
    assert process.stdout.readline() == "adding\n"
    said = []
    store = opened(source, said)
    assert len(said) == 1 and "another process is making it" in said[0]
    assert_same(store.prepared(dtype=torch.float32), prepared_in_memory(source))
    process.communicate(timeout=60)
    assert process.returncode == 0 and len(list(source.parent.iterdir())) == 2


def test_workers_come_to_the_same(source, monkeypatch):
    path = opened(source).path
    alone = {name: data[:] for name, data in h5py.File(path, "r").items()}
    path.unlink()
    monkeypatch.setattr(storing, "PIECE", 1000)
    monkeypatch.setattr(storing, "WORTH_A_WORKER", 2000)
    monkeypatch.setattr(storing, "processors", lambda: 2)
    opened(source)
    together = h5py.File(path, "r")
    assert together.keys() == alone.keys()
    for name, values in alone.items():
        assert values.tobytes() == together[name][:].tobytes() or name == "sources"
    text = source.read_text().replace("energy=-6.0", "energy=six", 1)
    source.write_text(text)
    with pytest.raises(UserError, match="energy=six"):
        opened(source)


def test_a_worker_that_dies_is_told_of(source, monkeypatch):
    tasks = [(os.fspath(source), SETTINGS, None)] * 3
    with pytest.raises(RuntimeError, match="ended with code 7"):
        list(workers.mapped(os._exit, [7], 1))
    with pytest.raises(RuntimeError, match="ended with code 1"):  # an error of our own
        list(workers.mapped(storing.prepare_text, tasks, 1))


def test_elements_that_the_model_lacks_are_all_named(source):
    with pytest.raises(UserError) as wanted:
        check_elements(read_xyz(source), ("Si",))
    with pytest.raises(UserError) as found:
        open_store(source, model_settings(("Si",)))
    assert str(found.value) == str(wanted.value)


def test_info_says_what_it_is(source, capsys):
    path = opened(source).path
    said = " ".join(describe(path).split())
    assert "neighbours that trainings start from" in said and "4.5 to 5 Å radial" in said
    assert f"{len(read_xyz(source)):,}, " in said and "can be deleted" in said
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(UserError, match="it is cut short; it can be deleted"):
        describe(path)
    path.unlink()
    with h5py.File(path, "w") as file:
        file["counts"] = [1]
    with pytest.raises(UserError, match="no store of nepkit"):
        describe(path)
