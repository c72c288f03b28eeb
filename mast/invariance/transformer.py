"""A scikit-learn transformer that makes features of any model invariant to changes.

N samples, D features, M axes.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from mast.invariance.subspaces import RIDGE, Space, Subspaces


class Invariance(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Shrink features along the directions in which a change moves them.

        Invariance().fit(X, X_changed).transform(X)

    In a pipeline, use it fitted:
    `make_pipeline(FrozenEstimator(Invariance().fit(X, X_changed)), LogisticRegression())`.

    Args:
        ridge: Added to the second moment of the displacements, relative to its mean eigenvalue;
            the smaller, the stronger the invariance.

    Attributes:
        space_: The linear map.

    Reference:
        docs/method.md, "In closed form".
    """

    space_: Space

    def __init__(self, ridge: float = RIDGE) -> None:
        self.ridge = ridge

    def fit(
        self,
        X: Any,  # as scikit-learn calls them
        X_changed: Any,
    ) -> "Invariance":
        """Learn how a change moves features.

        Args:
            X: Features (N, D).
            X_changed: Features (N, D) of the same samples after a change; or a list or mapping of
                such arrays, one for each change to ignore.

        Raises:
            ValueError: Wrong shapes, or numbers that are not finite.
        """
        if not isinstance(self.ridge, Real) or not self.ridge > 0:
            raise ValueError(f"ridge: expected a number above 0, got {self.ridge!r}")
        x_ND = torch.tensor(validate_data(self, X, dtype=np.float32, ensure_min_samples=2))
        changes = [*X_changed.values()] if isinstance(X_changed, Mapping) else X_changed
        several = isinstance(changes, Sequence) and all(np.ndim(each) > 1 for each in changes)
        arrays = [np.array(each, np.float32) for each in (changes if several else [changes])]
        for each in arrays:
            if each.shape != x_ND.shape or not np.isfinite(each).all():
                raise ValueError(f"X_changed: expected finite values of {tuple(x_ND.shape)}, got "
                                 f"{each.shape}")  # fmt: skip
        changed = {str(at): torch.from_numpy(each) for at, each in enumerate(arrays)}
        found = Subspaces.of(x_ND, changed, [x_ND.shape[1]], still=0.0)
        self.space_ = found.ignoring(list(found.factors), self.ridge)
        self._n_features_out = x_ND.shape[1]  # for names of features
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Centered and scaled features (N, D) in which the changes hardly count by cosine."""
        check_is_fitted(self)
        x_ND = validate_data(self, X, dtype=np.float32, reset=False)
        return self.space_(torch.tensor(x_ND)).numpy()
