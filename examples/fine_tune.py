"""Fine-tune a shipped model in PyTorch on a new problem, in less than a minute.

Run it: python examples/fine_tune.py
"""

import time

import torch

from ridgeformer import Problem, evaluate, load
from ridgeformer.torch import ProblemDataset, from_torch, moment_loss, to_torch

# The shipped model was trained on contexts of 20 examples. In the new problem, contexts have 30.
model = load("zoo:full/5/uniform(0,5)")
problem = Problem(dim=10, context=30, noise="uniform(0,5)")

module = to_torch(model, dtype=torch.float32)
steps = 1500
adam = torch.optim.Adam(module.parameters(), lr=1e-3, betas=(0.9, 0.99))
schedule = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=1e-3, total_steps=steps)
began = time.perf_counter()
for batch in ProblemDataset(problem, 1024, batches=steps):
    # The target is what ridge regression predicts that knows the noise level: this is the adjusted loss.
    loss = moment_loss(module, batch.gram, batch.target)
    adam.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    adam.step()
    schedule.step()
seconds = time.perf_counter() - began

for name, one in {"shipped": model, "fine-tuned": from_torch(module.double())}.items():
    found = evaluate(problem, one, sequences=50_000)
    print(f"{name:10} adjusted loss {found.loss:.4f}, {found.ratio:.2f} times the floor")
print(f"{steps} steps took {seconds:.0f} s")
