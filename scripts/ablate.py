"""Compare settings of a training: each with several seeds, judged on frames held out.

    python scripts/ablate.py RUN_DIR --out DIR "as it is" "decay: weight_decay=0.1" "short: epoch=50"

A setting is a name and, after a colon, keywords of nep.in that differ from RUN_DIR/nep.in; values of
several words in quotes ("rate: 'learning_rate=5e-3 1e-5'"). The runs take place one after the other in
DIR. The same command goes on where it was interrupted, and runs that are done are not repeated, so
that settings and seeds can be added. DIR/runs.csv has a row for each run, DIR/table.md the mean and
the standard deviation over the seeds, in meV/atom, meV/Å, meV/atom and seconds of training.
"""

from __future__ import annotations

import argparse
import csv
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from nepkit.files import write_atomically
from nepkit.results import KINDS, SETS, History, read_results

KEYS = ("setting", "seed", "keywords")
MEASURES = [f"{model} {kind.name}" for model in ("last", "best", "train") for kind in KINDS]
COLUMNS = (*KEYS, *MEASURES, "best step", "seconds")


def main():
    options = parse()
    settings = dict(setting(text) for text in options.settings)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = read_rows(options.out / "runs.csv")
    for seed in range(options.seeds):
        for name, keywords in settings.items():
            words = shlex.join([*shlex.split(options.common), *keywords])
            key = (name, str(seed), words)
            if any(key == tuple(row[k] for k in KEYS) for row in rows):
                continue
            print(f"{name}, seed {seed}: {words}", flush=True)
            found = train(options, f"{slug(name)}-{seed}", seed, shlex.split(words))
            rows = [row for row in rows if (row["setting"], row["seed"]) != key[:2]]
            rows.append({**dict(zip(KEYS, key)), **found})
            write_rows(options.out / "runs.csv", rows)
            write_atomically(options.out / "table.md", table(rows))
    print(table(rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="nep.in and data, test.xyz")
    parser.add_argument("settings", nargs="+", metavar="NAME: key=value ...", help="to compare")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the runs")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="of each (default: 3)")
    parser.add_argument("--common", default="", metavar="WORDS", help="keywords of all settings")
    parser.add_argument("--device", default="auto", metavar="NAME", help="as of nepkit train")
    return parser.parse_args()


def setting(text: str) -> tuple[str, list[str]]:
    """Name and keywords of a setting."""
    name, _, words = text.partition(":")
    return name.strip(), shlex.split(words)


def slug(name: str) -> str:
    """The name as part of a folder's."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", name)


def train(options: argparse.Namespace, name: str, seed: int, words: list[str]) -> dict[str, str]:
    """One run, in a process of its own; its errors in thousandths of eV, and its time."""
    out = options.out / name
    command = [sys.executable, "-m", "nepkit.train", str(options.run_dir), *words]
    command += ["--seed", str(seed), "--device", options.device, "--out", str(out)]
    log = options.out / f"{name}.log"
    for more in ([], ["--restart"]):  # anew if the settings of this name were others before
        with open(log, "ab") as file:
            code = subprocess.call(command + more, stdout=file, stderr=subprocess.STDOUT)
        if code != 2 or not (out / "checkpoint.pt").exists():
            break
    if code:
        sys.exit(f"{shlex.join(command)}\nended with code {code}; see {log}")
    seconds = (out / "history.csv").read_text().splitlines()[-1].split(",")[2]
    return {**measures(read_results(out).history), "seconds": seconds}


def measures(history: History) -> dict[str, str]:
    """Held-out errors of the last and of the best model, training errors of the last."""
    judged = max((name for name, _ in history.errors), key=SETS.index)
    rows = {"last": (judged, -1), "best": (judged, history.best), "train": (SETS[0], -1)}
    found = {
        f"{model} {kind.name}": f"{1e3 * history.errors[data, kind.name][row]:.4f}"
        for model, (data, row) in rows.items()
        for kind in KINDS
        if (data, kind.name) in history.errors
    }
    return {**found, "best step": str(history.step[history.best])}


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[dict[str, str]]):
    lines = [",".join(COLUMNS)]
    for row in rows:
        cells = [row.get(name) or "" for name in COLUMNS]
        lines.append(",".join(f'"{cell}"' if "," in cell else cell for cell in cells))
    write_atomically(path, "\n".join(lines) + "\n")


def table(rows: list[dict[str, str]]) -> str:
    """Mean ± standard deviation over the seeds of each setting, as Markdown."""
    measured = [name for name in COLUMNS[3:] if any(row.get(name) for row in rows)]
    lines = ["| " + " | ".join(["setting", "seeds", *measured]) + " |"]
    lines.append("|---" * (2 + len(measured)) + "|")
    for name in dict.fromkeys(row["setting"] for row in rows):
        members = [row for row in rows if row["setting"] == name]
        cells = [spread([float(row[m]) for row in members if row.get(m)]) for m in measured]
        lines.append("| " + " | ".join([name, str(len(members)), *cells]) + " |")
    return "\n".join(lines) + "\n"


def spread(values: list[float]) -> str:
    if not values:
        return "-"
    deviation = f" ± {statistics.stdev(values):.3g}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4g}{deviation}"


if __name__ == "__main__":
    main()
