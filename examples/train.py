"""Train a NEP4 potential from Python: python examples/train.py [RUN_DIR [OUT [STEPS]]]"""

import sys

from nepkit import train_nep

run_dir, out, steps = [*sys.argv[1:], *("data/sige", "example_run", "3000")[len(sys.argv) - 1 :]]

# Keywords of nep.in may be given here, in place of its lines. Running the script again goes on
# from the last checkpoint; with restart=True it would begin anew.
errors = train_nep(run_dir, out=out, generation=steps, shared_base=1, batch=8)

for name, error in errors.items():
    print(f"{name}: forces {1e3 * error.force:.1f} meV/Å, energy {1e3 * error.energy:.2f} meV/atom")
