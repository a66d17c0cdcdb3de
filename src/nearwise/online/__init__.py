"""Online updates of a positive semidefinite matrix, one example at a time.

`ExponentiatedGradient` learns from values tr(W A), `LogDetOnline` from squared distances, `Pola` from similar
and dissimilar pairs, and `OnlinePCA` follows the subspace in which vectors lie. `nearwise.OnlineLearner` is
the scikit-learn estimator on top of the first three.
"""

from nearwise.online.exponentiated_gradient import ExponentiatedGradient
from nearwise.online.logdet import LogDetOnline
from nearwise.online.pca import OnlinePCA
from nearwise.online.pola import Pola

__all__ = ["ExponentiatedGradient", "LogDetOnline", "OnlinePCA", "Pola"]
