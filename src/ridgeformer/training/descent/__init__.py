"""Descents as protocols: gradient descent, SGD, Adam and gradient flow, which show how a model learns."""
