"""Student's t distribution, with the standard library alone."""

from __future__ import annotations

import math
from statistics import NormalDist

_STEPS = 300
_PRECISION = 1e-12
_OF_QUANTILE = 1e-9
_TINY = 1e-300


def two_sided_p_value(t: float, degrees: float) -> float:
    """Return the probability of a value at least as far from 0 as ``t``.

    Args:
        t: the statistic; infinite for a difference without any noise.
        degrees: degrees of freedom, above 0; infinite for the normal distribution.
    """
    if math.isinf(t):
        return 0.0
    if math.isinf(degrees):
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def two_sided_quantile(confidence: float, degrees: float) -> float:
    """Return the t that bounds this share of the distribution symmetrically around 0.

    Args:
        confidence: above 0 and below 1.
        degrees: degrees of freedom, above 0; infinite for the normal distribution.
    """
    if math.isinf(degrees):
        return NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = 0.0, 1.0
    while two_sided_p_value(high, degrees) > 1 - confidence:
        low, high = high, high * 2
    while high - low > _OF_QUANTILE * high:
        middle = (low + high) / 2
        if two_sided_p_value(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function.

    Source: the continued fraction of the NIST Digital Library of Mathematical Functions, 8.17.22, by Lentz's
    method.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    upper, lower = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    fraction = lower
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            lower = 1 / _not_zero(1 + term * lower)
            upper = _not_zero(1 + term / upper)
            change = lower * upper
            fraction *= change
        if abs(change - 1) < _PRECISION:
            break
    return front * fraction / a


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
