"""``nepkit check``: looks at a data set and tells what could spoil a training."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from ..config import ModelSettings, read_nep_in
from ..data.xyz import iter_xyz
from ..errors import UserError
from ..train.start import data_files
from ..units import ELEMENTS
from .clean import write_without
from .facts import Facts, Surveyor
from .findings import SERIOUS, SUSPICIOUS, Finding
from .groups import duplicates
from .notes import all_notes
from .rules import all_frames
from .summary import summary, told

__all__ = ["Checked", "Finding", "check_data"]

# Å, those of GPUMD, for a file without a nep.in.
CUTOFFS = (8.0, 4.0)


@dataclass(frozen=True)
class Checked:
    """What ``check_data`` found."""

    findings: list[Finding]
    facts: list[Facts]  # one a file
    settings: ModelSettings
    from_nep_in: bool
    batch: int | None = None  # frames a step, where nep.in says so

    def frames(self, path: str, *severities: str) -> list[int]:
        """Frames of a file with a finding of these severities, ascending."""
        return sorted(
            {
                finding.frame
                for finding in self.findings
                if finding.severity in severities and finding.path == path
                and finding.frame is not None
            }
        )  # fmt: skip

    def text(self, everything: bool = False) -> str:
        """The report; ``everything``: all findings, not a few of each kind."""
        cutoffs = self.settings.radial_cutoff, self.settings.angular_cutoff
        values = " and ".join(
            f"{min(c):g}" if min(c) == max(c) else f"{min(c):g} to {max(c):g}" for c in cutoffs
        )
        origin = "of nep.in" if self.from_nep_in else "(no nep.in: the default)"
        parts = [f"cutoffs {origin}: {values} Å, radial and angular"]
        parts += [summary(self.facts[0], self.settings, self.batch)]
        parts += [summary(facts) for facts in self.facts[1:]]
        return "\n".join([*parts, told(self.findings, everything)])


def check_data(path: str | os.PathLike, *, max_force: float | None = None) -> Checked:
    """Look at the data of a run directory, or at one extended XYZ file.

    A run directory's nep.in says which elements and cutoffs (Å) count, and test.xyz is looked at
    too. ``max_force``: forces above it (eV/Å) are serious, in place of a limit from the data.

    Raises:
        UserError: a file cannot be read; what its frames hold is no error but a finding.
    """
    path = Path(path)
    if path.is_dir():
        config = read_nep_in(path / "nep.in")
        settings, batch = config.model, config.stages[0].batch
        files = [os.fspath(file) for file in data_files(path).values()]
    else:
        settings, batch, files = None, None, [os.fspath(path)]
    radial, angular = _cutoffs(settings)
    facts = []
    for file in files:
        with tqdm(
            iter_xyz(file), f"checking {file}", unit=" frames", disable=None, leave=False, delay=1.0
        ) as frames:
            facts.append(Surveyor(radial, angular).survey(file, frames))
    from_nep_in = settings is not None
    if settings is None:
        elements = facts[0].elements
        settings = ModelSettings(elements, *((cutoff,) * len(elements) for cutoff in CUTOFFS))
    findings = duplicates(facts)
    for number, each in enumerate(facts):
        findings += all_frames(each, settings.elements, max_force)
        findings += all_notes(each, settings.elements, number == 0)
    return Checked(findings, facts, settings, from_nep_in, batch)


def write_clean(checked: Checked, target: str | os.PathLike) -> str:
    """Copy the (training) file without its serious and suspicious frames; says what it did."""
    facts = checked.facts[0]
    serious = checked.frames(facts.path, SERIOUS)
    frames = checked.frames(facts.path, SERIOUS, SUSPICIOUS)
    if len(frames) == len(facts):
        raise UserError(f"{facts.path}: every frame is serious or suspicious; nothing to write")
    spans = [(int(facts.line[k]), int(facts.n_atoms[k]) + 2) for k in frames]
    write_without(facts.path, Path(target), spans)
    left_out = f" (without {', '.join(map(str, frames[:10]))}" if frames else ""
    left_out += "" if not frames else ", ...)" if len(frames) > 10 else ")"
    if frames:
        left_out += f": {len(serious):,} serious, {len(frames) - len(serious):,} suspicious"
    return f"{target}: {len(facts) - len(frames):,} of {len(facts):,} frames{left_out}"


def _cutoffs(settings: ModelSettings | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Radial and angular cutoff of each element from H to Pu; of strangers the largest."""
    if settings is None:
        return tuple((cutoff,) * len(ELEMENTS) for cutoff in CUTOFFS)
    return tuple(
        tuple(
            dict(zip(settings.elements, cutoffs)).get(symbol, max(cutoffs)) for symbol in ELEMENTS
        )
        for cutoffs in (settings.radial_cutoff, settings.angular_cutoff)
    )
