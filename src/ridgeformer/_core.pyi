import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.arguments import Float

def instruction_sets() -> list[tuple[str, int]]: ...
def sample(
    isa: str,
    dim: int,
    context: int,
    seed: int,
    stream: int,
    step: int,
    first: int,
    sigma: NDArray[np.float64],
    gram: Float,
    task: Float,
    ridge: Float,
    threads: int,
) -> None: ...
def evaluate(
    isa: str,
    dim: int,
    first: Float,
    second: Float | None,
    gram: Float,
    target: Float,
    ceiling: float,
    losses: Float,
    weights: Float | None,
    gradient: NDArray[np.float64] | None,
    threads: int,
) -> int: ...
def step(
    isa: str,
    dim: int,
    context: int,
    seed: int,
    stream: int,
    step: int,
    first_sequence: int,
    sigma: NDArray[np.float64],
    first: Float,
    second: Float | None,
    ridge: bool,
    ceiling: float,
    losses: Float,
    plain: Float | None,
    gradient: NDArray[np.float64] | None,
    threads: int,
) -> int: ...
def uniforms(seed: int, stream: int, step: int, first: int, out: NDArray[np.float64]) -> None: ...
def peak(isa: str, threads: int) -> float: ...
