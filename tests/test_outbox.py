"""Numbers on their way to a device."""

import numpy as np
import pytest
import torch

from nepkit.data.outbox import HALF, Outbox

ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("kind", [torch.float32, torch.int64], ids=str)
def test_what_is_sent_arrives_in_turn(device, kind):
    """Also where the device is behind by more than there is room for."""
    target = torch.zeros(100, dtype=kind, device=device)
    outbox, found = Outbox(target), []
    busy = torch.ones(2048, 2048, device=device) if device == "cuda" else None
    for number in range(20 * HALF):
        if busy is not None:
            busy @ busy
        outbox.send(np.full(100, number))
        found.append(target.clone())
    for number, values in enumerate(found):
        assert (values == number).all()


def test_numbers_of_several_kinds():
    target = torch.zeros(3)
    Outbox(target).send((1e-3, 1, 0.25))
    assert target.tolist() == [pytest.approx(1e-3), 1.0, 0.25]
