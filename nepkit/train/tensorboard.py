"""The reports of a run for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError
from .folder import TENSORBOARD
from .outputs import Errors

# Names of the scalars; errors are told in thousandths.
NAMES = {
    "energy": "energy_meV_per_atom", "force": "force_meV_per_A", "virial": "virial_meV_per_atom",
}  # fmt: skip


def check_tensorboard(wanted: bool) -> bool:
    """Refuse where TensorBoard is wanted and not installed."""
    if wanted:
        _writer_class()
    return wanted


def _writer_class():
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(
            "--tensorboard needs the package tensorboard: pip install 'nepkit-mlip[tensorboard]'"
        ) from error
    return SummaryWriter


class Scalars:
    """While entered, writes reports into FOLDER/tensorboard; does nothing unless ``wanted``.

    What an earlier process wrote after step ``done`` is left out of sight.
    """

    def __init__(self, wanted: bool, folder: Path, done: int):
        self._wanted, self._folder, self._done = wanted, folder, done
        self._writer = None

    def __enter__(self):
        if self._wanted:
            path = str(self._folder / TENSORBOARD)
            self._writer = _writer_class()(path, purge_step=self._done + 1)
        return self

    def __exit__(self, *_):
        if self._writer is not None:
            self._writer.close()

    def add(self, step: int, loss: float, learning_rate: float, found: dict[str, Errors]):
        """One report; ``found``: errors by data set."""
        if self._writer is None:
            return
        scalars = {"loss": loss, "learning_rate": learning_rate}
        for name, errors in found.items():
            for kind, label in NAMES.items():
                if (error := getattr(errors, kind)) is not None:
                    scalars[f"{label}/{name}"] = 1e3 * error
        for label, value in scalars.items():
            self._writer.add_scalar(label, value, step)
        self._writer.flush()
