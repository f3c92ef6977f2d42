"""Figures of bench_variants.py: time, memory and loss side by side, and loss curves with their table."""

from __future__ import annotations

import csv
from pathlib import Path

CURVES = {"mulsum": "eager", "mulsum compiled": "compiled", "fused": "graph"}
COMPARED = 50  # steps over which float32 variants have to agree


def curves_of(rows: list) -> dict[str, list[float]]:
    """The losses of each step by variant and precision; none of what does not run."""
    # On a CPU there is no graph.
    names = CURVES if rows[0].device != "cpu" else CURVES | {"fused": "fused"}
    found = {(r.variant, r.precision): r.losses for r in rows}
    kinds = [(name, precision) for precision in ("float32", "float64") for name in names]
    return {f"{names[name]} {precision}": found[name, precision] for name, precision in kinds}


def curve_table(curves: dict[str, list[float]]) -> str:
    """A line every ten steps, and how far float32 variants are apart."""
    steps = max(map(len, curves.values()))
    lines = ["loss at step" + "".join(f"{name:>18s}" for name in curves)]
    for step in (1, *range(10, steps + 1, 10)):
        cells = (f"{c[step - 1]:.8g}" if len(c) >= step else "-" for c in curves.values())
        lines.append(f"{step:12d}" + "".join(f"{cell:>18s}" for cell in cells))
    eager, found = curves["eager float32"], []
    for name, losses in curves.items():
        if name == "eager float32" or not name.endswith("float32"):
            continue
        apart = [abs(a - b) / abs(a) for a, b in zip(eager[:COMPARED], losses)]
        found.append(f"{name} {max(apart):.1e}" if apart else f"{name} did not run")
    first = f"the first {min(COMPARED, steps)} losses"
    lines.append(f"largest relative difference of {first} from eager float32: {', '.join(found)}")
    return "\n".join(lines)


def write_curves(path: Path, rows: list):
    """The losses of a case as a table, a CSV file and a plot beside it."""
    curves = curves_of(rows)
    print(curve_table(curves), flush=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *curves])
        for k in range(max(map(len, curves.values()))):
            writer.writerow([k + 1, *(c[k] if k < len(c) else "" for c in curves.values())])
    from nepkit.plot.style import image

    path.with_suffix(".png").write_bytes(image(lambda: draw_curves(curves), "png"))


def write_bars(path: Path, rows: list):
    """Time, memory and loss of all variants, a line of panels for each case."""
    from nepkit.plot.style import image

    path.write_bytes(image(lambda: draw_bars(rows), "png"))


def draw_curves(curves: dict[str, list[float]]):
    from nepkit.plot.style import COLUMN, new_figure

    figure = new_figure(COLUMN, 2.6)
    panel = figure.subplots()
    for name, losses in curves.items():
        style = "-" if name.endswith("32") else ":"
        panel.plot(range(1, len(losses) + 1), losses, style, label=name)
    panel.set(xlabel="Step", ylabel="Loss", yscale="log")
    panel.legend()
    return figure


def draw_bars(rows: list):
    from nepkit.plot.style import PAGE, new_figure

    cases = list(dict.fromkeys(row.case for row in rows))
    figure = new_figure(PAGE, 0.4 + 1.6 * len(cases))
    for case, panels in zip(cases, figure.subplots(len(cases), 3, squeeze=False)):
        own = [row for row in rows if row.case == case and row.loss is not None][::-1]
        names = [f"{row.variant} {row.precision[-2:]}" for row in own]
        kinds = {
            "ms/step": [row.ms_per_step for row in own],
            "peak MiB": [(row.peak_bytes or 0) / 2**20 for row in own],
            "loss of the last step": [row.loss for row in own],
        }
        for panel, (title, values) in zip(panels, kinds.items()):
            panel.bar_label(panel.barh(names, values, color="#0072B2"), fmt=" %.4g")
            panel.margins(x=0.25)
            panel.locator_params(axis="x", nbins=4)
            panel.set_xlabel(f"{case}: {title}")
        for panel in panels[1:]:
            panel.set_yticklabels([])
    return figure
