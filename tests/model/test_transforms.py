"""Random transforms, read and compiled, make what a plain model says."""

import random

import pytest

from jsserver.text.transforms import parse
from tests.model import transforms


@pytest.mark.parametrize("seed", range(20))
def test_compiled_transforms_do_what_the_model_does(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        model = transforms.model(rng)
        source, destination = ".".join(model.source), model.destination(rng)
        transform = parse(source, destination)
        assert transform is not None
        compiled = transform.compiled()
        for _ in range(10):
            subject = transforms.subject(rng, model)
            want = model.made(subject)
            made = compiled(subject)
            got = None if made is None else transforms.raw(made)
            assert got == want, (source, destination, subject)
