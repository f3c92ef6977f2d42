#!/usr/bin/env bash
# What an AMD GPU (or any other) makes of nepkit, in one file to send back:
#
#     bash scripts/confirm_amd.sh [FILE.tar.gz]
#
# Versions, the GPU tests, whether graphs repeat direct steps, all forms of a training step side by side,
# the kernels over their floors, what the compiler says of them, and a Kineto trace of a training. Goes on
# where a part fails, and says at the end which did. Takes some minutes; without a GPU it is a trial on
# the CPU with little of everything.
set -uo pipefail
file=${1:-nepkit-confirm-$(date +%Y%m%d-%H%M%S).tar.gz}
case $file in /*) ;; *) file=$PWD/$file ;; esac
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if ! "$python" -c "import hypothesis, matplotlib, pytest; from nepkit import train_nep" 2>/dev/null; then
    set -e
    source scripts/environment.sh plot,test
    set +e
fi
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
work=$(mktemp -d) && : >"$file.part" || exit  # not after minutes of work
trap 'rm -rf "$work" "$file.part"' EXIT
out=$work/nepkit-confirm
mkdir "$out"
passed=() failed=() left_out=()
# A GPU that hangs must not take the other parts with it.
limit=$(command -v timeout >/dev/null && echo "timeout -k 10 1800")

part() { # name, command ...: its output goes to NAME.txt
    local name=$1 start=$SECONDS
    shift
    echo "$name ..."
    if $limit "$@" >"$out/$name.txt" 2>&1; then
        passed+=("$name ($((SECONDS - start)) s)")
    else
        failed+=("$name (exit code $?, $((SECONDS - start)) s)")
        tail -n 5 "$out/$name.txt"
    fi
}

versions() {
    uname -a
    "$python" - <<'END'
import platform, torch
from importlib.metadata import PackageNotFoundError, version

print("Python", platform.python_version())
for name in ("torch", "triton", "pytorch-triton-rocm", "numba", "numpy", "ase", "vesin"):
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
print("ROCm", torch.version.hip, "CUDA", torch.version.cuda)
for number in range(torch.cuda.device_count()):
    print(number, torch.cuda.get_device_properties(number))
END
    for tool in rocminfo rocm-smi amd-smi nvidia-smi; do
        command -v $tool >/dev/null || continue
        echo "--- $tool"
        case $tool in
            rocm-smi) rocm-smi --showdriverversion --showproductname --showmeminfo vram ;;
            amd-smi) amd-smi version ;;
            *) $tool ;;
        esac
    done
    return 0
}

graphs='
import sys, tempfile
from pathlib import Path

sys.path.insert(0, "scripts")
import bench_peers, bench_step

with tempfile.TemporaryDirectory() as folder:
    xyz = Path(folder, "train.xyz")
    bench_peers.first_frames(Path("data/sige/train.xyz"), 20, xyz)
    keywords = bench_peers.model_keywords(Path("data/sige/nep.in"))
    step = bench_step.new_step(xyz, keywords, "cuda")
    graphs = step.run.step.graphs
    graphs.trusted = None  # not known yet, as on ROCm
    step()
print("a graph repeats direct steps bit by bit:", graphs.trusted)
sys.exit(not graphs.trusted)
'

architecture=$("$python" -c "
import torch
if torch.cuda.is_available():
    from nepkit.ops.triton.launch import architecture
    print(architecture())
" 2>/dev/null)
if "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then
    device=cuda variants=(--batch 20) train="generation=200 --profile 20"
else
    echo "torch finds no GPU: a trial on the CPU with little of everything"
    device=cpu variants=(--batch 2 --steps 3 --variant bmm,fused) train="generation=4 --profile 2"
fi
sige=(--xyz data/sige/train.xyz --nep-in data/sige/nep.in)

export -f versions
export python
part versions bash -c versions
if [ $device = cuda ]; then
    part tests "$python" -m pytest -q -m gpu $(grep -l "mark.gpu" tests/*.py)
    part graphs "$python" -c "$graphs"
    variants+=(--plot "$out/variants.png" --curves "$out/curves.csv")
    part floors "$python" scripts/kernel_floors.py "${sige[@]}" --batch 20 --json "$out/floors.json"
else
    left_out+=("tests, graphs and floors: they need a GPU")
fi
part variants "$python" scripts/bench_variants.py "${sige[@]}" --device $device \
    --json "$out/variants.json" "${variants[@]}"
part profile "$python" -m nepkit.train data/sige $train --device $device --out "$out/train"
if [ -z "$architecture" ]; then
    left_out+=("compiler: it needs a GPU and Triton")
elif "$python" scripts/amd_report.py --help | grep -q "$architecture"; then
    part compiler "$python" scripts/amd_report.py --check --target "$architecture"
else
    left_out+=("compiler: scripts/amd_report.py does not know $architecture")
fi

rm -f "$out/train/checkpoint.pt"
{
    for name in "${passed[@]:+${passed[@]}}"; do echo "passed: $name"; done
    for name in "${left_out[@]:+${left_out[@]}}"; do echo "left out: $name"; done
    for name in "${failed[@]:+${failed[@]}}"; do echo "failed: $name"; done
} | tee "$out/summary.txt"
if ! tar -czf "$file.part" -C "$work" nepkit-confirm || ! mv "$file.part" "$file"; then
    echo "$file could not be written" >&2
    exit 1
fi
echo "send back $file"
[ ${#failed[@]} = 0 ]
