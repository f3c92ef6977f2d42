"""Every Triton kernel compiled for a GPU that need not be there, and what the compiler says of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nepkit.ops.layers import ATOM_TILE
from nepkit.ops.products import ROW_TILE
from nepkit.ops.terms import QUARTIC_FACTOR
from nepkit.ops.triton import (
    coefficients,
    contraction,
    expansion,
    invariants,
    layer_gradients,
    layers,
    pair_forces,
    segment,
    tangents,
)
from nepkit.ops.triton.launch import DEFAULT, TABLE, padded

INDICES = {
    "order", "row_start", "radial_order", "angular_order", "radial_start", "start",
    "angular_start", "group", "center", "member", "factors", "tile_type",
}  # fmt: skip
COUNTS = {"n_rows", "n_atoms", "n_items", "n_segments", "width"}
# An ordinary model, and a large one: the numbers of functions, components and so on.
MODELS = {
    "ordinary": {"NR": 5, "KR": 9, "NA": 5, "KA": 9, "L": 24, "I": 6, "M": 9, "P": 6, "H": 30},
    "large": {"NR": 9, "KR": 13, "NA": 7, "KA": 13, "L": 80, "I": 14, "M": 31, "P": 25, "H": 100},
}
TARGETS = {
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "sm_90": GPUTarget("cuda", 90, 32),
}


class Kernel(NamedTuple):
    """A kernel, what it is called in the launch table, and its constants but those."""

    function: object
    table: str
    constants: dict
    num_warps: int = 0  # where the table has none


def kernels(size: dict[str, int]) -> dict[str, Kernel]:
    """All kernels with the constants of a model of ``size``."""
    n_r, k_r, n_a, k_a, n_l = (size[name] for name in ("NR", "KR", "NA", "KA", "L"))
    width = n_r + size["I"] * n_a
    model = {"NR": n_r, "KR": k_r, "NA": n_a, "KA": k_a, "L": n_l}
    pairs = {"K": k_a, "L": n_l, "KP": padded(k_a), "LP": padded(n_l)}
    near = {"K": k_r, "KP": padded(k_r)}
    model_p = {"NRP": padded(n_r), "KRP": padded(k_r), "LP": padded(n_l)}
    blocks = {"NRP": n_r, "KRP": k_r, "NAP": n_a, "KAP": k_a}
    blocks = {name: max(16, padded(value)) for name, value in blocks.items()}
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
    layer = {"A": width, "H": size["H"], "TILE": ATOM_TILE}
    return {
        "radial forces": Kernel(pair_forces.radial_kernel, "radial_forces", near),
        "angular forces": Kernel(pair_forces.angular_kernel, "angular_forces", pairs),
        "atom sums": Kernel(pair_forces.atom_kernel, "atom_sums", {}),
        "radial tangents": Kernel(tangents.radial_kernel, "radial_tangents", near),
        "angular tangents": Kernel(tangents.angular_kernel, "angular_tangents", pairs),
        **sums,
        "contraction": Kernel(
            contraction.contraction_kernel, "contraction", model | model_p | {"NAP": padded(n_a)}
        ),
        "expansion": Kernel(
            expansion.expansion_kernel,
            "expansion",
            model | model_p | {"KAP": padded(k_a), "D": width},
        ),
        "coefficient products": Kernel(
            coefficients.products_kernel,
            "coefficient_products",
            model | blocks | {"D": width, "TILE": ROW_TILE},
        ),
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


def compiled(kernel: Kernel, target: str, dtype: str = "fp32"):
    """``kernel`` compiled for ``target`` with the launch values of that GPU, and its warps."""
    chosen = dict(TABLE.get(target, {}).get(kernel.table) or DEFAULT.get(kernel.table, {}))
    options = {"num_warps": kernel.num_warps, "enable_fp_fusion": True}
    options |= {name: chosen.pop(name) for name in ("num_warps", "num_stages") if name in chosen}
    constants = kernel.constants | chosen
    signature, attributes = {}, {}
    # Of pairs it is an index, of rows a density.
    of_pairs = {"order", "angular_order"} & set(kernel.function.arg_names)
    indices = INDICES | {"angular"} if of_pairs else INDICES
    for place, name in enumerate(kernel.function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in COUNTS:
            signature[name] = "i32"
        else:
            signature[name] = "*i32" if name in indices else f"*{dtype}"
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
        "SGPR": r"\.sgpr_count:\s+(\d+)",
        "VGPR spills": r"\.vgpr_spill_count:\s+(\d+)",
        "SGPR spills": r"\.sgpr_spill_count:\s+(\d+)",
        "scratch": r"\.private_segment_fixed_size:\s+(\d+)",
        "occupancy": r"; Occupancy:\s+(\d+)",
    }
    text = result.asm["amdgcn"]
    found = {name: int(re.search(pattern, text).group(1)) for name, pattern in patterns.items()}
    return found | {"LDS": result.metadata.shared}


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
