"""The silence of open decisions, as terms of the posterior.

A reward other than zero comes after a delay with distribution function F. A decision of age a
without a reward has a reward of zero, or one that has not come yet. For conversions with
probability p = sigma(z), z = x'theta, its negative log-likelihood is

    -log(1 - p F(a)) = log(1 + e^z) - log(1 + e^{z + c}),      c = log(1 - F(a)),

with derivatives p - later and p (1 - p) - later (1 - later), later = sigma(z + c) being the
probability that it still converts. At F = 0 it says nothing, at F = 1 it is an ordinary failure. A
reward that comes ends the silence: its term takes the place of the silent one, and adds to the
Hessian, as a further wait does.

The term is convex for z <= -c / 2 only: of a decision that was nearly certain to convert, silence
says that it is late rather than that it fails. Where the second derivative at center is negative
the Hessian has zero in its place. So S stays positive definite. The mode is a point where the
gradient is zero, for the gradient is exact; as the Hessian is never too small at center, steps
towards it are at most too short. Of a concave term S knows nothing: it is larger than the inverse
of EM's Hessian, which takes a silent decision for a known one, p (1 - p).

The certificate rests on a third derivative that the second one bounds. Of silent terms that is
true up to z = ``RARE``. It is thus given while all silent rows stay below that on the way from
center to the mode, and is infinite elsewhere; where it is given, the mode is the only stationary
point of that region. Once all decisions are closed, nothing of this is left.

References
----------
O. Chapelle: Modeling Delayed Feedback in Display Advertising. KDD 2014 (whose delays are
exponential, and learnt with the conversions).
"""

from typing import Any

from belated.core.jit import inlined_kernel, kernel
from belated.core.types import Vector
from belated.model.protocols import silence_derivatives


@inlined_kernel
def silent_pull(family: Any, z: float, F: float) -> float:
    """Returns what the term of a silent row adds to the gradient, as a multiple of x."""
    return silence_derivatives(family, z, F)[0]


@inlined_kernel
def silent_weight(family: Any, z: float, F: float) -> float:
    """Returns what a silent row adds to the Hessian, as a multiple of xx': 0 where concave."""
    return max(0.0, silence_derivatives(family, z, F)[1])


@kernel
def slopes_by_law(family: Any, z: Vector, F: Vector, out: Vector) -> None:
    """``out`` becomes the derivative of each silent pull by log F.

    The pull at F is F p' / (1 - p F), that at 1 is p' / (1 - p), with p the chance of a reward
    above zero. So the derivative, F p' / (1 - p F)^2, follows from the two. It is 0 at F = 1, where
    no factor of the law is left.
    """
    for i in range(out.shape[0]):
        out[i] = 0.0
        failure = silence_derivatives(family, z[i], 1.0)[0]
        if F[i] < 1.0 and failure > 0.0:
            pull = silence_derivatives(family, z[i], F[i])[0]
            out[i] = pull * (failure - pull) / (failure * (1.0 - F[i]))
