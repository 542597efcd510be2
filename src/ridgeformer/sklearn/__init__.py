"""Ridgeformer in scikit-learn: a regressor that predicts by exact Bayes, or by a linear transformer with a guard.

Needs scikit-learn: pip install scikit-learn.

>>> from ridgeformer.sklearn import InContextRegressor
>>> from sklearn.datasets import load_diabetes
>>> X, y = load_diabetes(return_X_y=True)
>>> regressor = InContextRegressor().fit(X[:400], y[:400])
>>> prediction, std = regressor.predict(X[400:], return_std=True)
>>> prediction.shape, std.shape
((42,), (42,))
"""

from ridgeformer.errors import MissingPackageError

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:  # pragma: no cover (the tests have it)
    raise MissingPackageError(
        "ridgeformer.sklearn needs scikit-learn, which is not installed. Run pip install scikit-learn."
    ) from error

from ridgeformer.sklearn.models import FallbackWarning as FallbackWarning
from ridgeformer.sklearn.regressor import InContextRegressor as InContextRegressor
