"""The training loop of pytorch_tokens.py in moment form: the same model, the same losses, far less work.

Run it: python examples/pytorch_moments.py
"""

from pytorch_tokens import BATCH, CONTEXT, DIM, LinearAttention, train

from ridgeformer import Diag, LinearTransformer, Problem
from ridgeformer.torch import ProblemDataset, moment_loss, to_torch  # in place of token_batches and token_loss

start = LinearAttention()  # the same random start
module = to_torch(LinearTransformer(Diag(start.p.detach().numpy(), start.q.detach().numpy()), DIM))

# A linear transformer sees a context only through its Gram matrix, which can be drawn directly. Its loss is averaged
# over all queries in closed form: 1/2 |w_hat - w|^2.
problem = Problem(DIM, CONTEXT, "uniform(0,5)")
batches = ((batch.gram, batch.task) for batch in ProblemDataset(problem, BATCH))

train(module, batches, moment_loss)
