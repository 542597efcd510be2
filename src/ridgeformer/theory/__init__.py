"""Closed forms that hold for any problem. The theorems of a paper are in its package under `ridgeformer.papers`.

>>> from ridgeformer import Problem
>>> from ridgeformer.theory import one_layer
>>> problem = Problem(dim=3, context=8, noise=1)
>>> round(one_layer.risk(problem, one_layer.optimum(problem)), 4)
0.5769
"""
