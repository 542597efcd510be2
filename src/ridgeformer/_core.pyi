from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.kernels import Float

def instruction_sets() -> list[tuple[str, int]]: ...
def sample(
    isa: str,
    law: dict[str, Any],
    seed: int,
    stream: int,
    step: int,
    first: int,
    sigma: NDArray[np.float64],
    gram: Float,
    task: Float,
    ridge: Float,
    metric: Float | None,
    threads: int,
) -> None: ...
def evaluate(
    isa: str,
    dim: int,
    parameters: list[Float],
    gram: Float,
    target: Float,
    metric: Float | None,
    ceiling: float,
    losses: Float,
    weights: Float | None,
    gradient: NDArray[np.float64] | None,
    threads: int,
) -> int: ...
def step(
    isa: str,
    law: dict[str, Any],
    seed: int,
    stream: int,
    step: int,
    first_sequence: int,
    sigma: NDArray[np.float64],
    parameters: list[Float],
    ridge: bool,
    ceiling: float,
    losses: Float,
    unadjusted: Float | None,
    gradient: NDArray[np.float64] | None,
    threads: int,
) -> int: ...
def uniforms(seed: int, stream: int, step: int, first: int, word: int, out: NDArray[np.float64]) -> None: ...
def peak(isa: str, threads: int) -> float: ...
