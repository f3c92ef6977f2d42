"""Training on data from the store: the same as from memory, and a window at a time where need be."""

import numpy as np
import pytest
import torch
from run_files import contents, make_run, random_frames
from structures import model_settings

from nepkit import Interrupted, train_nep
from nepkit.data.batch import Batch
from nepkit.data.sampler import BLOCKS, Sampler
from nepkit.data.storing import open_store
from nepkit.data.windows import Windows, at_hand, sampler_of
from nepkit.train import loop, reading, residence, run

TIMED = ("history.csv", "nepkit.log", "checkpoint.pt", "nepkit_run.json", "nepkit.lock")
LONG = {"generation": "40", "output_interval": "20", "batch": "3"}


@pytest.mark.parametrize("n_frames, batch, windows", [(100, 7, 3), (1003, 16, 5), (20, 3, 50)])
def test_an_epoch_in_windows(n_frames, batch, windows):
    work = np.random.default_rng(0).uniform(1, 2, n_frames)
    sampler = Sampler(work, batch, seed=1, stage=0, windows=windows)
    count = sampler.n_batches
    assert count == Sampler(work, batch, seed=1, stage=0).n_batches
    epochs = []
    for epoch in range(3):
        steps = range(epoch * count, (epoch + 1) * count)
        parts = [sampler.frames(step) for step in steps]
        sizes = {len(part) for part in parts}
        assert max(sizes) - min(sizes) <= 1 and max(sizes) <= batch
        epochs.append(np.concatenate(parts).tolist())
        assert sorted(epochs[-1]) == list(range(n_frames))
        held = {sampler.window(step) for step in steps}
        assert len(held) == sampler.windows == min(windows, count)
        assert sorted(step for window in held for step in window) == list(steps)
    assert epochs[0] != epochs[1] != epochs[2]
    again = Sampler(work, batch, seed=1, stage=0, windows=windows)
    for step in (2 * count + 1, 0, count, 2 * count):
        assert again.frames(step).tolist() == sampler.frames(step).tolist()


def test_windows_are_made_of_blocks():
    sampler = Sampler(np.ones(20_000), 50, seed=0, stage=0, windows=4)
    frames = np.sort(np.concatenate([sampler.frames(step) for step in sampler.window(0)]))
    assert len(frames) == 5000
    ranges = 1 + (np.diff(frames) > 1).sum()
    assert BLOCKS // 3 < ranges <= BLOCKS + 2
    # From all of the file, and mixed.
    assert np.histogram(frames, 10, (0, 20_000))[0].min() > 100
    assert np.ptp(sampler.frames(0)) > 10_000


def make_large(folder, count=30, test=None):
    return make_run(folder, random_frames(count), test, **LONG)


@pytest.fixture
def windows(tmp_path):
    settings = model_settings(("Si", "Ge"), radial=4.0, angular=3.0)
    store = open_store(make_large(tmp_path) / "train.xyz", settings)
    return Windows(store, torch.float64, store.bytes() / 4), store.structures(dtype=torch.float64)


def test_batches_are_those_of_all_frames(windows):
    windows, everything = windows
    sampler = sampler_of(windows, 4, seed=0, stage=0)
    assert len(windows) == len(everything) and sampler.windows == windows.number == 4
    assert torch.equal(windows.pair_types(), everything.pair_types())
    places = ("row_index", "half_index", "angular_index", "atom_index", "tables")
    names = [name for name in Batch.__dataclass_fields__ if name not in places]
    for step in (0, 1, 7, 30, 3):
        members = at_hand(windows, sampler, step)
        for frames in (members, np.arange(3, 9), np.arange(len(windows))):
            found, wanted = (s.batch(torch.tensor(frames)) for s in (windows, everything))
            for name in names:
                one, other = getattr(found, name), getattr(wanted, name)
                assert torch.equal(one, other) and one.dtype == other.dtype, name


def test_only_windows_are_in_memory(windows):
    windows, everything = windows
    sampler = sampler_of(windows, 4, seed=0, stage=0)
    most, read = 0, []
    windows.finish = lambda prepared: read.append(len(prepared))
    for step in range(3 * sampler.n_batches):
        frames = at_hand(windows, sampler, step)
        windows.batch(torch.tensor(frames))
        most = max(most, windows._window.structures.bytes())
    assert most < 0.45 * everything.bytes()
    assert len(read) <= 3 * sampler.windows + 1 and max(read) <= 0.4 * len(windows)


def test_a_store_changes_nothing(tmp_path, monkeypatch):
    plain, stored = (
        make_large(tmp_path / n, test=random_frames(4, 50)) for n in ("plain", "stored")
    )
    train_nep(plain, device="cpu")
    assert not list(plain.glob("*.h5"))
    monkeypatch.setattr(reading, "STORED", 0)
    train_nep(stored, device="cpu")
    assert len(list(stored.glob("*.nepkit.h5"))) == 2
    wanted = contents(plain, *TIMED)
    assert {name: contents(stored)[name] for name in wanted} == wanted


@pytest.fixture
def small_memory(monkeypatch):
    monkeypatch.setattr(reading, "STORED", 0)
    with residence.memory_budget(20_000):
        yield


def test_windows_change_the_order_alone(tmp_path, small_memory, monkeypatch):
    """Against all frames in memory in the same order."""
    parts, whole = (make_large(tmp_path / n, test=random_frames(4, 50)) for n in ("parts", "whole"))
    train_nep(parts, device="cpu")
    said = (parts / "nepkit.log").read_text()
    assert "parts an epoch are read from" in said
    number = int(said.split(" parts an epoch")[0].split()[-1])
    assert number > 3
    monkeypatch.setattr(reading, "STORED", 1e9)

    def sampler(structures, batch, seed, stage):
        work = structures.counts[:, 2:].sum(1).astype(float)
        return Sampler(work, batch, seed, stage, number)

    monkeypatch.setattr(loop, "sampler_of", sampler)
    with residence.memory_budget(1e9):
        train_nep(whole, device="cpu")
    for name in ("nep.txt", "loss.out", "force_train.out", "energy_test.out", "nep.restart"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_run_in_windows_goes_on_bit_for_bit(tmp_path, small_memory, monkeypatch):
    straight, broken = (make_large(tmp_path / name) for name in ("straight", "broken"))
    train_nep(straight, device="cpu")
    take = loop.Run._take_step

    def stopping(self, *arguments):
        if self.done in stops:
            stops.remove(self.done)
            self.save()
            raise Interrupted
        return take(self, *arguments)

    stops = [3, 17, 29]
    monkeypatch.setattr(loop.Run, "_take_step", stopping)
    for _ in range(3):
        with pytest.raises(Interrupted):
            train_nep(broken, device="cpu")
    train_nep(broken, device="cpu")
    assert stops == []
    wanted = contents(straight, *TIMED)
    assert {name: contents(broken)[name] for name in wanted} == wanted


def test_the_second_start_prepares_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "STORED", 0)
    folder = make_large(tmp_path / "run")
    train_nep(folder, device="cpu")
    monkeypatch.setattr("nepkit.data.storing.prepared_pieces", None)
    monkeypatch.setattr(run.checkpoint, "load", lambda folder: None)
    train_nep(folder, device="cpu", restart=True)
