"""Compile every Triton kernel for GPUs that need not be there, and say what the compiler says.

    python scripts/amd_report.py                        # tables for all of TARGETS
    python scripts/amd_report.py --target gfx942 --model large --dtype fp64
    python scripts/amd_report.py --check                # exit code 1 where a kernel does not fit

A kernel fits if nothing spills, nothing lies in scratch memory, it has no float atomics and no
number of another precision, takes at most 64 KiB of shared memory and 1,024 lanes, and if lanes that
share a sum hold the same bits of it. Registers are those of a lane (VGPR of 512, AGPR among them) or of a
wave (SGPR), scratch and LDS bytes, occupancy the waves that a SIMD holds at once, matrix and atomics
numbers of instructions. For the chips of amd_instructions.py, a second table says what a pair of atoms
costs in each kernel over pairs, and the least time that follows: a prediction. Needs Triton.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

try:
    import triton
except ImportError:
    sys.exit("amd_report.py compiles by Triton, which is not here: pip install triton")
from amd_instructions import CHIPS, CLASSES, WAVE, count, lanes_may_differ, least_cycles, loops
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nepkit.ops.gather import Pieces
from nepkit.ops.layers import ATOM_TILE
from nepkit.ops.products import ROW_TILE
from nepkit.ops.terms import QUARTIC_FACTOR
from nepkit.ops.triton import (
    assembly,
    changes,
    coefficients,
    contraction,
    expansion,
    gather,
    invariants,
    layer_gradients,
    layers,
    loss,
    moving_close,
    moving_forces,
    moving_pulls,
    moving_repulsion,
    moving_sums,
    pair_forces,
    segment,
    tangents,
    tiles,
    update,
)
from nepkit.ops.triton.launch import TABLE, of_width, padded

INDICES = {
    "order", "row_start", "radial_order", "angular_order", "radial_start", "start",
    "angular_start", "group", "center", "member", "factors", "tile_type", "first_row",
    "second_row", "table_place", "half_place", "neighbor", "frame", "types", "atom_frame",
    "shift", "source", "index", "frame_out",
    "counts", "totals", "member_of_slot", "tile_start", "owner",
    "close", "turned", "kind", "place", "length",
}  # fmt: skip
WIDE = {"frames", "offsets"}
COUNTERS = {"steps", "unusable", "skipped", "rate_at", "weight_at"}  # float32 whatever the rest
POSITIONS = {"positions", "shifts"}  # float64 whatever the rest: only differences are rounded
COUNTS = {
    "n_rows", "n_atoms", "n_items", "n_segments", "width", "n_halves", "n_frames", "n_parts",
    "n_offsets", "n_source", "size", "stride", "column",
    "n_members", "n_groups", "n_chunks", "n_tiles", "first", "n_types", "n_k", "l_max", "n_shifts",
    "n_own", "n_all", "n_squares",
}  # fmt: skip
# An ordinary model, and a large one: the numbers of functions, components and so on.
MODELS = {
    "ordinary": {"NR": 5, "KR": 9, "NA": 5, "KA": 9, "L": 24, "I": 6, "M": 9, "P": 6, "H": 30},
    "large": {"NR": 9, "KR": 13, "NA": 7, "KA": 13, "L": 80, "I": 14, "M": 31, "P": 25, "H": 100},
}
TARGETS = {
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
    "gfx1100": GPUTarget("hip", "gfx1100", 32),
    "sm_90": GPUTarget("cuda", 90, 32),
}
PLACED = {"PLACED": True}
SHARED = 64 * 1024  # bytes
LANES = 1024  # of a workgroup
ATOMIC = re.compile(r"cmpswap|atomic_(pk_)?add_f|\batom\.|\bred\.")
MATRIX = re.compile(r"\bv_(mfma|smfmac|wmma)|\b(mma|wgmma)\.")
# Radial pairs, angular ones and rows of the benchmark's batches; both ends of a pair count once.
CASES = {
    "PbTe, 25": {"radial": 200_098, "angular": 18_878, "rows": 12_500},
    "PbTe, 1": {"radial": 8_230, "angular": 759, "rows": 500},
    "m16": {"radial": 85_775, "angular": 50_611, "rows": 43_661},
    "m89": {"radial": 61_289, "angular": 33_823, "rows": 6_022},
}


class Loop(NamedTuple):
    """What a kernel over pairs, or the next of its loops, takes at a time."""

    pairs: str  # radial or angular
    ends: int  # of a pair: 1 where a kernel has it once, 2 where each of its atoms has it
    taken: tuple[str, ...] = ()  # the constants whose product is the number of them
    long: bool | None = None  # for batches of long rows or for others alone


class Kernel(NamedTuple):
    """A kernel, what it is called in the launch table, and its constants but those."""

    function: object
    table: str
    constants: dict
    num_warps: int = 0  # where the table has none
    loops: tuple[Loop, ...] = ()  # over pairs


def kernels(size: dict[str, int]) -> dict[str, Kernel]:
    """All kernels with the constants of a model of ``size``."""
    n_r, k_r, n_a, k_a, n_l = (size[name] for name in ("NR", "KR", "NA", "KA", "L"))
    width = n_r + size["I"] * n_a
    model = {"NR": n_r, "KR": k_r, "NA": n_a, "KA": k_a, "L": n_l}
    pairs = {"K": k_a, "L": n_l, "KP": padded(k_a), "LP": padded(n_l)}
    near = {"K": k_r, "KP": padded(k_r)}
    model_p = {"NRP": padded(n_r), "KRP": padded(k_r), "LP": padded(n_l)}
    products = {"TILE": ROW_TILE} | PLACED
    items = {"FACTOR": QUARTIC_FACTOR, "QUARTIC": size["I"] - 1, "D": width, "NR": n_r}
    items |= {"N": n_a, "L": n_l}
    values = items | {"I": size["I"], "M": size["M"], "MP": padded(size["M"])}
    slopes = items | {"P": size["P"], "LP": padded(n_l)}
    sums = {
        f"segment sum, {places} x {columns}": Kernel(
            segment.sum_kernel, "", dict(zip(("SEGMENTS", "PLACES", "COLUMNS"), segment.tile(places, columns)))
            | {"ORDERED": True}, 4,
        )
        for places, columns in ((4, k_r), (32, k_r), (128, 6), (32, 2048))
    }  # fmt: skip
    places = "ATOMS", "PLACES"
    labels = dict(zip(loss.STRIDES, (9, 9, 9, 9, 5, 5, 5)))
    l_max = int((n_l + 1) ** 0.5) - 1
    moving = {"N": n_a, "L": n_l, "LP": padded(n_l), "l_max": l_max}
    moving_near = {"N": n_r, "NP": padded(n_r)}
    rules = {"BETA": 0.9, "BETA_SQUARE": 0.999, "EPS": 1e-8, "MAX_NORM": 1.0, "COUPLED": False}
    rules |= {"LOG_BETA": -0.1, "LOG_BETA_SQUARE": -0.001, "SERIES_BELOW": update.SERIES_BELOW}
    squares = {"SQUARES": 256}
    layer = {"A": width, "H": size["H"], "TILE": ATOM_TILE}
    return {
        "frames of a batch": Kernel(assembly.frames_kernel, "", {"FRAMES": 128}, 4),
        "members of a batch": Kernel(
            assembly.members_kernel, "members", {"KIND": 2, "COLUMNS": 6, "STEPS": 7}
        ),
        "counts of groups": Kernel(tiles.count_kernel, "tiles", {}),
        "members of groups": Kernel(tiles.place_kernel, "tiles", {"TILE": ROW_TILE}),
        "groups of tiles": Kernel(
            tiles.owner_kernel, "tile_owners", {"TILE": ROW_TILE, "STEPS": 7}
        ),
        "radial forces": Kernel(
            pair_forces.radial_kernel,
            "radial_forces",
            near | PLACED,
            loops=(Loop("radial", 1, ("BLOCK",)),),
        ),
        "angular forces": Kernel(
            pair_forces.angular_kernel,
            "angular_forces",
            pairs | PLACED,
            loops=(Loop("angular", 1),),
        ),
        "atom sums": Kernel(
            pair_forces.atom_kernel,
            "atom_sums",
            PLACED,
            loops=(Loop("radial", 2, places), Loop("angular", 2, places)),
        ),
        "changes": Kernel(
            changes.change_kernel, "changes", PLACED, loops=(Loop("radial", 1, ("BLOCK",)),)
        ),
        "radial tangents": Kernel(
            tangents.radial_kernel,
            "radial_tangents",
            near | PLACED,
            loops=(Loop("radial", 2, ("ROWS", "PLACES")),),
        ),
        "angular tangents": Kernel(
            tangents.angular_kernel,
            "angular_tangents",
            pairs | PLACED,
            loops=(Loop("angular", 2, ("PAIRS",), long=False),),
        ),
        "angular tangents, long": Kernel(
            tangents.angular_kernel,
            "long_angular_tangents",
            pairs | PLACED,
            loops=(Loop("angular", 2, ("PAIRS",), long=True),),
        ),
        "loss of frames": Kernel(loss.frames_kernel, "loss_frames", labels),
        "slopes of the loss": Kernel(
            loss.slopes_kernel, "loss_slopes", {"RMSE": True, "TINY": 1e-30, "FRAMES": 128} | labels
        ),
        **sums,
        "contraction": Kernel(
            contraction.contraction_kernel,
            "contraction",
            model | model_p | {"NAP": padded(n_a)} | PLACED,
        ),
        "expansion": Kernel(
            expansion.expansion_kernel,
            "expansion",
            model | model_p | {"KAP": padded(k_a), "D": width},
        ),
        "coefficient products": Kernel(
            coefficients.products_kernel,
            "coefficient_products",
            products | {"N": n_a, "K": k_a, "L": n_l, "NP": padded(n_a), "LP": padded(n_l)},
        ),
        "radial products": Kernel(
            coefficients.products_kernel,
            "radial_products",
            products | {"N": n_r, "K": k_r, "L": 1, "NP": padded(n_r), "LP": 1},
        ),
        "shared parts": Kernel(gather.gather_kernel, "gather", {"COLUMNS": Pieces.COLUMNS}),
        "sums over many": Kernel(gather.gather_kernel, "gather_long", {"COLUMNS": Pieces.COLUMNS}),
        "squares": Kernel(update.squares_kernel, "squares", {}),
        "AdamW": Kernel(update.move_kernel, "move", rules | squares),
        "Adam": Kernel(update.move_kernel, "move", rules | squares | {"COUPLED": True}),
        "average": Kernel(update.average_kernel, "average", {"ANCHORED": True} | squares),
        "turned pairs, moving": Kernel(moving_close.turned_kernel, "moving_turned", {}),
        "vectors, moving": Kernel(moving_close.vectors_kernel, "moving_vectors", {}),
        "close pairs, moving": Kernel(moving_close.close_kernel, "moving_close", {}),
        "functions of close pairs": Kernel(
            moving_close.functions_kernel, "moving_functions", {"N": n_a, "NP": padded(n_a)}
        ),
        "radial sums, moving": Kernel(
            moving_sums.radial_sums_kernel, "moving_radial_sums", moving_near
        ),
        "angular sums, moving": Kernel(
            moving_sums.angular_sums_kernel, "moving_angular_sums", moving | {"NP": padded(n_a)}
        ),
        "pulls, moving": Kernel(
            moving_pulls.pulls_kernel, "moving_pulls", moving_near | {"D": width}
        ),
        "radial forces, moving": Kernel(
            moving_forces.radial_forces_kernel, "moving_radial_forces", {}
        ),
        "angular forces, moving": Kernel(
            moving_forces.angular_forces_kernel, "moving_angular_forces", moving
        ),
        "repulsion, moving": Kernel(moving_repulsion.repulsion_kernel, "moving_repulsion", {}),
        "descriptors": Kernel(invariants.values_kernel, "invariants", values | {"CHANGE": False}),
        "changes of descriptors": Kernel(
            invariants.values_kernel, "invariants", values | {"CHANGE": True}
        ),
        "slopes of sums": Kernel(
            invariants.slopes_kernel, "invariant_slopes", slopes | {"SECOND": False}
        ),
        "gradients of sums": Kernel(
            invariants.slopes_kernel, "invariant_slopes", slopes | {"SECOND": True}
        ),
        **{
            f"layer {name}": Kernel(function, "layers", layer | flags)
            for name, function, flags in (
                ("values", layers.up_kernel, {"CHANGE": False}),
                ("rates", layers.up_kernel, {"CHANGE": True}),
                ("slopes, last", layers.down_kernel, {"LAST": True, "CHANGE": False}),
                ("slopes", layers.down_kernel, {"LAST": False, "CHANGE": False}),
                ("bars, last", layers.down_kernel, {"LAST": True, "CHANGE": True}),
                ("bars", layers.down_kernel, {"LAST": False, "CHANGE": True}),
                ("gradients, last", layer_gradients.gradients_kernel, {"LAST": True}),
                ("gradients", layer_gradients.gradients_kernel, {"LAST": False}),
            )
        },
    }


def constants_of(kernel: Kernel, target: str, dtype: str) -> tuple[dict, dict]:
    """The constants of ``kernel`` with the launch values of ``target``, and its options."""
    table = kernel.table
    if f"{table}_wide" in TABLE["default"]:
        table = of_width(table, kernel.constants["LP"], 4 if dtype == "fp32" else 8)
    chosen = dict(TABLE.get(target, {}).get(table) or TABLE["default"].get(table, {}))
    options = {"num_warps": kernel.num_warps, "enable_fp_fusion": True}
    options |= {name: chosen.pop(name) for name in ("num_warps", "num_stages") if name in chosen}
    return kernel.constants | chosen, options


def compiled(kernel: Kernel, target: str, dtype: str = "fp32"):
    """``kernel`` compiled for ``target`` with the launch values of that GPU, and its warps."""
    constants, options = constants_of(kernel, target, dtype)
    signature, attributes = {}, {}
    # Of pairs it is an index, of rows a density; of batches an index, of changes a step.
    of_pairs = {"half_place", "order", "angular_order"} & set(kernel.function.arg_names)
    indices = INDICES | {"angular"} if of_pairs else INDICES
    of_moving = {"positions", "end", "turned", "pulls"} & set(kernel.function.arg_names)
    wide = WIDE | {"start", "end"} if of_moving else WIDE
    if "frame_out" in kernel.function.arg_names:
        indices = indices | {"out", "shifts"}
    for place, name in enumerate(kernel.function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in COUNTS:
            signature[name] = "i32"
        else:
            kind = "i64" if name in wide else "i32" if name in indices else dtype
            kind = "fp64" if name in POSITIONS - indices else kind
            kind = "fp32" if name in COUNTERS else kind
            signature[name] = f"*{kind}"
            attributes[(place,)] = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
    source = ASTSource(kernel.function, signature, constants, attributes)
    result = triton.compile(source, target=TARGETS[target], options=options)
    return result, options["num_warps"]


def resources(result) -> dict[str, int]:
    """Registers, spills, scratch, shared memory and, on AMD, waves that a SIMD holds at once."""
    if "amdgcn" not in result.asm:
        return _resources_of_cubin(result)
    patterns = {
        "VGPR": r"\.vgpr_count:\s+(\d+)",
        "AGPR": r"\.agpr_count:\s+(\d+)",
        "SGPR": r"\.sgpr_count:\s+(\d+)",
        "VGPR spills": r"\.vgpr_spill_count:\s+(\d+)",
        "SGPR spills": r"\.sgpr_spill_count:\s+(\d+)",
        "scratch": r"\.private_segment_fixed_size:\s+(\d+)",
        "occupancy": r"; Occupancy:\s+(\d+)",
    }
    text = result.asm["amdgcn"]
    found = {name: re.search(pattern, text) for name, pattern in patterns.items()}
    # gfx1100 has no accumulation registers.
    counts = {name: int(match.group(1)) if match else 0 for name, match in found.items()}
    return counts | {"LDS": result.metadata.shared}


def _resources_of_cubin(result) -> dict[str, int]:
    """The same by NVIDIA's tool, which comes with triton: what spills is on the stack."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(result.asm["cubin"])
        command = [str(tool), "--dump-resource-usage", str(file)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {name: int(re.search(rf"{name}:(\d+)", text).group(1)) for name in ("REG", "STACK")}
    spills = {"VGPR spills": found["STACK"], "SGPR spills": 0, "scratch": found["STACK"]}
    return {"registers": found["REG"]} | spills | {"LDS": result.metadata.shared}


def faults(kernel: Kernel, result, num_warps: int, target: str, dtype: str) -> list[str]:
    """Why a compiled kernel does not fit."""
    # Positions are subtracted in float64, and nothing else.
    allowed = POSITIONS & set(kernel.function.arg_names)
    double = r"(mul|fma|mac|div|sqrt|rsq|rcp)\w*[_.]f64" if allowed else r"_f64|\.f64"
    found, text = resources(result), instructions(result)
    # A few scalars of a kernel in float64 may wait in a vector register, which is no memory.
    allowed_scalars = 16 if dtype == "fp64" and not found["scratch"] else 0
    wrong = [key for key in ("VGPR spills", "scratch") if found[key]]
    wrong += ["SGPR spills"] * (found["SGPR spills"] > allowed_scalars)
    tests = {
        "atomics": bool(ATOMIC.search(text)),
        "LDS": found["LDS"] > SHARED,
        "too many warps": num_warps * TARGETS[target].warp_size > LANES,
        "float64": dtype == "fp32" and bool(re.search(double, text)),
        "TF32": "tf32" in text,
        "sums that differ from lane to lane": lanes_may_differ(text),
    }
    return wrong + [name for name, is_so in tests.items() if is_so]


def instructions(result) -> str:
    """The instructions of a compiled kernel."""
    text = result.asm.get("amdgcn") or result.asm["ptx"]
    # A function that is only declared, for assertions, is no instruction.
    return "\n".join(line for line in text.splitlines() if not line.startswith((".extern", "//")))


def report(target: str, model: str, dtype: str) -> tuple[str, list[str]]:
    """Tables of all kernels of a model on a target, and the faults found."""
    lines, wrong, costs = [], [], []
    for name, kernel in kernels(MODELS[model]).items():
        result, num_warps = compiled(kernel, target, dtype)
        found, text = resources(result), instructions(result)
        found["matrix"], found["atomics"] = (len(x.findall(text)) for x in (MATRIX, ATOMIC))
        lines.append(f"{name:24}{num_warps:6}" + _row(found, found.values()))
        wrong += [f"{name}: {what}" for what in faults(kernel, result, num_warps, target, dtype)]
        if target in CHIPS and kernel.loops:
            costs += _costs(name, kernel, text, num_warps, target, dtype)
    head = f"{target}, {model} model, {dtype}\n{'kernel':24} warps"
    table = "\n".join([head + _row(found, found), *lines])
    return table + (_prediction(costs, target) if costs else ""), wrong


def _row(names, values) -> str:
    """Values below names."""
    return "".join(f"{value:>{max(8, len(name) + 2)}}" for name, value in zip(names, values))


class Cost(NamedTuple):
    """Of a kernel's loop, for each pair."""

    name: str
    loop: Loop
    instructions: dict[str, float]  # of waves, by class, for as many pairs as a wave has lanes
    cycles: float  # of a compute unit


def _costs(
    name: str, kernel: Kernel, text: str, num_warps: int, target: str, dtype: str
) -> list[Cost]:
    bodies = loops(text)
    if len(bodies) != len(kernel.loops):
        raise RuntimeError(f"{name}: {len(bodies)} loops in the place of {len(kernel.loops)}")
    values, costs = constants_of(kernel, target, dtype)[0], []
    for loop, body in zip(kernel.loops, bodies):
        waves = num_warps * loop.ends / math.prod(values[name] for name in loop.taken)
        counts = {key: n * waves for key, n in count(body).items()}
        of_a_wave = {key: n * WAVE for key, n in counts.items()}
        costs.append(Cost(name, loop, of_a_wave, least_cycles(counts)))
    return costs


def _prediction(costs: list[Cost], target: str) -> str:
    chip, totals = CHIPS[target], dict.fromkeys(CASES, 0.0)
    lines = [
        f"\n\n{target}, {chip.name}: what waves issue in the loops over pairs for {WAVE} pairs, by class; and",
        "a prediction, not a measurement: the least time in us that the kernels over pairs take of a step",
        "on the README's batches, m16 and m89 those of 16 and 89 elements, if all units are always busy",
        f"{'kernel':24} pairs  " + _row(CLASSES, CLASSES) + _row(CASES, CASES),
    ]
    for cost in costs:
        counts = [f"{cost.instructions.get(key, 0):.0f}" for key in CLASSES]
        times = []
        for case, sizes in CASES.items():
            long = 2 * sizes["angular"] > tangents.LONG * sizes["rows"]
            used = cost.loop.long in (None, long)
            us = cost.cycles * sizes[cost.loop.pairs] / (chip.compute_units * chip.clock)
            times.append(f"{us:.2f}" if used else "-")
            totals[case] += us * used
        lines.append(
            f"{cost.name:24} {cost.loop.pairs:7}" + _row(CLASSES, counts) + _row(CASES, times)
        )
    together = [f"{us:.2f}" for us in totals.values()]
    empty = " " * (len(lines[-1]) - len("together") - len(_row(CASES, together)))
    return "\n".join([*lines, "together" + empty + _row(CASES, together)])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--model", choices=MODELS, default="ordinary")
    parser.add_argument("--dtype", choices=("fp32", "fp64"), default="fp32")
    parser.add_argument(
        "--check", action="store_true", help="exit code 1 for kernels that do not fit"
    )
    options = parser.parse_args()
    wrong = []
    for target in options.target or TARGETS:
        table, found = report(target, options.model, options.dtype)
        print(table + "\n", flush=True)
        wrong += [f"{target}, {fault}" for fault in found]
    print("\n".join(wrong) or "every kernel fits")
    return int(options.check and bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
