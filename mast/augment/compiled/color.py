"""Colour operators, compiled."""

import numpy as np

from mast.augment.compiled.rows import BLUE, GREEN, ONE, RED, ZERO, at, clip, kernel

BRIGHTNESS, CONTRAST, SATURATION = 0, 1, 2  # as in color.ORDERS; 3 is the hue
_PART = 1024  # pixels treated at a time: they stay in the nearest cache between the steps
_SIX = np.float32(6)


@kernel
def jitter(images_BCHW, index_N, factor_N3, turn_N, order_N4):
    """See `color.jitter`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        factor_N3: float32 factors of brightness, contrast and saturation.
        turn_N: float32 turns of the hue, in parts of a full turn.
        order_N4: int64, which of the four comes when.
    """
    area = images_BCHW.shape[2] * images_BCHW.shape[3]
    for n in range(len(index_N)):
        image, order, turn = images_BCHW[index_N[n]].ravel(), order_N4[n], turn_N[n] * _SIX
        contrast_at = 0
        for step in range(4):
            if order[step] == CONTRAST:
                contrast_at = step
        total = 0.0
        for start in range(0, area, _PART):
            count = min(_PART, area - start)
            for step in range(contrast_at):
                factor = factor_N3[n, min(order[step], 2)]
                _adjust(count, image, start, area, order[step], factor, ZERO, turn)
            luminance = ZERO
            for i in range(count):
                red, green = image[at(start, i)], image[at(start + area, i)]
                luminance += RED * red + GREEN * green + BLUE * image[at(start + 2 * area, i)]
            total += luminance
        mean = np.float32(total / area)
        for start in range(0, area, _PART):
            count = min(_PART, area - start)
            for step in range(contrast_at, 4):
                factor = factor_N3[n, min(order[step], 2)]
                _adjust(count, image, start, area, order[step], factor, mean, turn)


@kernel
def _adjust(count, image, start, area, which, factor, mean, turn):
    """One of the four adjustments; `mean` is that of the luminance, for the contrast."""
    rest = ONE - factor
    if which == BRIGHTNESS:
        for c in range(3):
            for i in range(count):
                here = at(start + c * area, i)
                image[here] = clip(factor * image[here])
    elif which == CONTRAST:
        for c in range(3):
            for i in range(count):
                here = at(start + c * area, i)
                image[here] = clip(factor * image[here] + rest * mean)
    elif which == SATURATION:
        for i in range(count):
            r, g, b = at(start, i), at(start + area, i), at(start + 2 * area, i)
            added = rest * (RED * image[r] + GREEN * image[g] + BLUE * image[b])
            image[r] = clip(factor * image[r] + added)
            image[g] = clip(factor * image[g] + added)
            image[b] = clip(factor * image[b] + added)
    else:
        for i in range(count):
            r, g, b = at(start, i), at(start + area, i), at(start + 2 * area, i)
            red, green, blue = image[r], image[g], image[b]
            high, low = max(red, green, blue), min(red, green, blue)
            chroma = high - low
            sixth = red - green + np.float32(4) * chroma
            sixth = blue - red + np.float32(2) * chroma if high == green else sixth
            sixth = green - blue if high == red else sixth
            sixth = sixth / max(chroma, np.float32(1e-12)) + turn
            image[r] = _channel(sixth) * chroma + low
            image[g] = _channel(sixth + np.float32(4)) * chroma + low
            image[b] = _channel(sixth + np.float32(2)) * chroma + low


@kernel
def _channel(sixth):
    sixth = sixth - _SIX * np.floor(sixth * np.float32(1 / 6))
    return clip(abs(sixth - np.float32(3)) - ONE)


@kernel
def jitter_bands(images_BCHW, index_N, factor_N2, gain_NC):
    """See `color.jitter_bands`.

    Args:
        images_BCHW: Changed in place.
        index_N: Samples to treat.
        factor_N2: float32 factors of brightness and contrast.
        gain_NC: float32, of as many channels or more.
    """
    area = images_BCHW.shape[2] * images_BCHW.shape[3]
    for n in range(len(index_N)):
        contrast = factor_N2[n, 1]
        for c in range(images_BCHW.shape[1]):
            plane, total = images_BCHW[index_N[n], c].ravel(), 0.0
            gain = factor_N2[n, 0] * gain_NC[n, c]
            for start in range(0, area, _PART):
                part = ZERO
                for i in range(min(_PART, area - start)):
                    value = clip(gain * plane[at(start, i)])
                    plane[at(start, i)] = value
                    part += value
                total += part
            added = (ONE - contrast) * np.float32(total / area)
            for i in range(area):
                plane[at(0, i)] = clip(contrast * plane[at(0, i)] + added)


@kernel
def grayscale(images_BCHW, index_N):
    """See `color.gray`; all three channels become it."""
    area = images_BCHW.shape[2] * images_BCHW.shape[3]
    for i in index_N:
        image = images_BCHW[i].ravel()
        for j in range(area):
            r, g, b = at(0, j), at(area, j), at(2 * area, j)
            gray = RED * image[r] + GREEN * image[g] + BLUE * image[b]
            image[r], image[g], image[b] = gray, gray, gray


@kernel
def invert(images_BCHW, index_N):
    """See `color.Invert`."""
    for i in index_N:
        values = images_BCHW[i].ravel()
        for j in range(values.shape[0]):
            values[j] = ONE - values[j]


@kernel
def solarize(images_BCHW, index_N, threshold_N):
    """See `color.solarize`; float32 thresholds."""
    for n in range(len(index_N)):
        values, threshold = images_BCHW[index_N[n]].ravel(), threshold_N[n]
        for j in range(values.shape[0]):
            values[j] = ONE - values[j] if values[j] >= threshold else values[j]


@kernel
def posterize(images_BCHW, index_N, step_N):
    """See `color.posterize`; float32 steps between levels, powers of 2 up to 128."""
    for n in range(len(index_N)):
        values, step = images_BCHW[index_N[n]].ravel(), step_N[n]
        parts = ONE / step
        for j in range(values.shape[0]):
            level = np.floor(values[j] * np.float32(255.999))
            values[j] = np.floor(level * parts) * step * np.float32(1 / 255)


@kernel
def equalize(images_BCHW, index_N):
    """See `color.equalize`."""
    table = np.empty(256, np.float32)
    for i in index_N:
        for c in range(images_BCHW.shape[1]):
            values = images_BCHW[i, c].ravel()
            levels = np.empty(values.shape[0], np.uint8)
            histogram = np.zeros(256, np.int64)
            for j in range(values.shape[0]):
                levels[j] = np.uint8(values[j] * np.float32(255.999))
            for level in levels:
                histogram[level] += 1
            brightest = 0
            for level in range(256):
                if histogram[level]:
                    brightest = histogram[level]
            step = (values.shape[0] - brightest) // 255
            below = 0
            for level in range(256):
                if step > 0:
                    table[level] = np.float32(min((below + step // 2) // step, 255) if level else 0)
                else:
                    table[level] = np.float32(level)
                table[level] *= np.float32(1 / 255)
                below += histogram[level]
            for j in range(values.shape[0]):
                values[j] = table[levels[j]]
