"""Models as text or files that do not need ridgeformer: NumPy or PyTorch source, LaTeX equations, ONNX graphs.

>>> from ridgeformer import Diag, LinearTransformer
>>> model = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)  # one step of gradient descent
>>> module = {}
>>> exec(export(model), module)
>>> module["weights"]([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]).round(2).tolist()  # 0.03 sum y x
[0.69, 1.02]
"""

from ridgeformer.export.formats import FORMATS as FORMATS, Format as Format, export as export, write as write
