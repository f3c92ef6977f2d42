"""One finding of the doctor, and the kinds of them in the order of what they can spoil."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import at

SERIOUS, SUSPICIOUS, NOTE = "serious", "suspicious", "note"

# Kinds, the worst first: how bad, and the title.
KINDS = {
    "refused": (SERIOUS, "training refuses the frame"),
    "type": (SERIOUS, "element not in the type line of nep.in"),
    "energy": (SERIOUS, "energy far off"),
    "huge force": (SERIOUS, "huge force"),
    "huge pressure": (SERIOUS, "pressure out of scale"),
    "too close": (SERIOUS, "atoms on top of each other"),
    "sign": (SUSPICIOUS, "sign of the virial"),
    "conflict": (SUSPICIOUS, "one structure with different energies"),
    "overlap": (SUSPICIOUS, "in both train and test"),
    "zero": (SUSPICIOUS, "label exactly 0, perhaps a missing one"),
    "odd energy": (SUSPICIOUS, "energy off what is usual"),
    "net force": (SUSPICIOUS, "forces do not add up to 0"),
    "large force": (SUSPICIOUS, "large force"),
    "large pressure": (SUSPICIOUS, "large pressure"),
    "close": (SUSPICIOUS, "atoms close to each other"),
    "duplicate": (SUSPICIOUS, "the same structure again"),
    "neighbors": (NOTE, "neighbours"),
    "open": (NOTE, "not periodic"),
    "isolated": (NOTE, "atoms without a neighbour within the cutoff"),
    "thin": (NOTE, "cell thinner than the cutoff (allowed: images are summed)"),
    "rare": (NOTE, "elements in few frames"),
    "unseen": (NOTE, "pairs of elements never within the cutoff"),
}


@dataclass(frozen=True)
class Finding:
    """What was found, and where."""

    kind: str  # of KINDS
    text: str
    path: str
    frame: int | None = None  # from 0; None for the whole file
    line: int | None = None  # from 1
    size: float = 0.0  # the largest of a kind is told first

    @property
    def severity(self) -> str:
        """serious, suspicious or note."""
        return KINDS[self.kind][0]

    def __str__(self) -> str:
        # The report names the folder once.
        return f"{at(os.path.basename(self.path), self.line, self.frame)}: {self.text}"


def by_harm(findings: list[Finding]) -> dict[str, list[Finding]]:
    """Findings by kind, the worst kind and the worst of a kind first."""
    groups: dict[str, list[Finding]] = {kind: [] for kind in KINDS}
    for finding in findings:
        groups[finding.kind].append(finding)
    return {
        kind: sorted(members, key=lambda finding: (-finding.size, finding.frame or 0))
        for kind, members in groups.items()
        if members
    }
