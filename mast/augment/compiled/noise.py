"""Gaussian noise, compiled."""

import numpy as np

from mast.augment.compiled.rows import HALF, ONE, ZERO, at, clip, copy, kernel

_TURN = np.float32(np.pi / 65536)  # half of an angle's step
_LN2 = np.float32(np.log(2.0))
_ROOT2 = np.float32(np.sqrt(2.0))
_PART = 512  # numbers treated at a time


@kernel
def _mix(bits):
    """See `noise._mix`."""
    bits = np.uint32(bits ^ (bits >> np.uint32(16)))
    bits = np.uint32(bits * np.uint32(0x7FEB352D))
    bits = np.uint32(bits ^ (bits >> np.uint32(15)))
    bits = np.uint32(bits * np.uint32(0x846CA68B))
    return np.uint32(bits ^ (bits >> np.uint32(16)))


@kernel
def _logarithm(value):
    """Of a float32 in (0, 1], to 2e-6: the exponent, and the series of artanh for the rest."""
    bits = np.float32(value).view(np.int32)
    exponent = np.float32((bits >> np.int32(23)) - np.int32(127)) + HALF
    mantissa = np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)).view(np.float32)
    ratio = (mantissa - _ROOT2) / (mantissa + _ROOT2)
    square = ratio * ratio
    series = np.float32(1 / 7) + square * np.float32(1 / 9)
    series = ONE + square * (np.float32(1 / 3) + square * (np.float32(1 / 5) + square * series))
    return exponent * _LN2 + np.float32(2) * ratio * series


@kernel
def _add_normal(count, bits_T, values, first, other, second, std):
    """Box-Muller: 32 bits make two normal numbers, one for each of two stretches."""
    for i in range(count):
        bits = bits_T[at(0, i)]
        uniform = np.float32(np.int32(bits >> np.uint32(16)) + np.int32(1)) * np.float32(2**-16)
        radius = std * np.sqrt(max(np.float32(-2) * _logarithm(uniform), ZERO))
        # Taylor series at half the angle, which lies in [-pi/2, pi/2); half a turn flips the sign
        half = np.float32(np.int32(bits & np.uint32(0xFFFF)) - np.int32(32768)) * _TURN
        square = half * half
        sine = np.float32(-1 / 5040) + square * np.float32(1 / 362880)
        sine = np.float32(-1 / 6) + square * (np.float32(1 / 120) + square * sine)
        sine = half * (ONE + square * sine)
        cosine = np.float32(1 / 40320) - square * np.float32(1 / 3628800)
        cosine = np.float32(1 / 24) + square * (np.float32(-1 / 720) + square * cosine)
        cosine = ONE + square * (np.float32(-0.5) + square * cosine)
        at_first, at_second = at(first, i), at(second, i)
        values[at_first] = clip(values[at_first] - radius * (ONE - np.float32(2) * sine * sine))
        other[at_second] = clip(other[at_second] - radius * np.float32(2) * sine * cosine)


@kernel
def add_noise(images_BCHW, index_N, std_N, seed_N):
    """See `noise.add_noise`; the field is within 1e-4 standard deviations of it.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        std_N: float32 standard deviations.
        seed_N: int64 seeds in [0, 2^31).
    """
    total = images_BCHW.shape[1] * images_BCHW.shape[2] * images_BCHW.shape[3]
    half = (total + 1) // 2
    position = np.empty(half, np.uint32)
    for i in range(half):
        position[i] = _mix(np.uint32(i + 1))
    bits = np.empty(_PART, np.uint32)
    spare = np.zeros(_PART, np.float32)
    for n in range(len(index_N)):
        values, seed = images_BCHW[index_N[n]].ravel(), _mix(np.uint32(seed_N[n]))
        for start in range(0, half, _PART):
            count = min(_PART, half - start)
            for i in range(count):
                bits[at(0, i)] = _mix(np.uint32(position[at(start, i)] ^ seed))
            second = half + start
            if second + count <= total:
                _add_normal(count, bits, values, start, values, second, std_N[n])
            else:  # an odd total leaves the last number without a partner
                copy(total - second, spare, 0, values, second)
                _add_normal(count, bits, values, start, spare, 0, std_N[n])
                copy(total - second, values, second, spare, 0)
