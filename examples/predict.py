"""Evaluate a model, and name the worst frames: python examples/predict.py NEP_TXT DATA_XYZ"""

import sys

import numpy as np

from nepkit import predict_dataset

model, data = sys.argv[1:]
result = predict_dataset(model, data)
print(f"energy {1e3 * result.errors.energy:.2f} meV/atom over {len(result.targets.energy)} frames")
print(f"forces {1e3 * result.errors.force:.1f} meV/Å")

# Frames are in the order of the file, their atoms one after another.
difference = result.prediction.forces - result.targets.forces
first_atoms = np.cumsum(result.targets.n_atoms)[:-1]
of_frame = [np.sqrt(np.mean(part**2)) for part in np.split(difference, first_atoms)]
for frame in np.argsort(of_frame)[::-1][:5]:
    print(f"frame {frame}: forces {1e3 * of_frame[frame]:.1f} meV/Å")
