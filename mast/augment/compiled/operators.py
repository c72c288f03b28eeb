"""The operators, compiled: each kernel is that of the same name in `mast.augment.operators`."""

import math

import numpy as np

from mast.augment.compiled.rows import (
    BLUE,
    GREEN,
    HALF,
    ONE,
    RED,
    ZERO,
    add_scaled,
    at,
    clip,
    copy,
    kernel,
    mirror_ends,
    mirrored,
)

BRIGHTNESS, CONTRAST, SATURATION = 0, 1, 2  # as in color.ORDERS; 3 is the hue
_PART = 1024  # pixels treated at a time: they stay in the nearest cache between the steps
_SIX = np.float32(6)


@kernel
def jitter(images_BCHW, index_N, factor_B3, turn_B, order_B4):
    area = images_BCHW.shape[2] * images_BCHW.shape[3]
    for n in index_N:
        image, order, turn = images_BCHW[n].ravel(), order_B4[n], turn_B[n] * _SIX
        contrast_at = 0
        for step in range(4):
            if order[step] == CONTRAST:
                contrast_at = step
        total = 0.0
        for start in range(0, area, _PART):
            count = min(_PART, area - start)
            for step in range(contrast_at):
                factor = factor_B3[n, min(order[step], 2)]
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
                factor = factor_B3[n, min(order[step], 2)]
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
def jitter_bands(images_BCHW, index_N, factor_B2, gain_BC):
    area = images_BCHW.shape[2] * images_BCHW.shape[3]
    for n in index_N:
        contrast = factor_B2[n, 1]
        for c in range(images_BCHW.shape[1]):
            plane, total = images_BCHW[n, c].ravel(), 0.0
            gain = factor_B2[n, 0] * gain_BC[n, c]
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
    area = images_BCHW.shape[2] * images_BCHW.shape[3]
    for i in index_N:
        image = images_BCHW[i].ravel()
        for j in range(area):
            r, g, b = at(0, j), at(area, j), at(2 * area, j)
            gray = RED * image[r] + GREEN * image[g] + BLUE * image[b]
            image[r], image[g], image[b] = gray, gray, gray


@kernel
def invert(images_BCHW, index_N):
    for i in index_N:
        values = images_BCHW[i].ravel()
        for j in range(values.shape[0]):
            values[j] = ONE - values[j]


@kernel
def solarize(images_BCHW, index_N, threshold_B):
    for n in index_N:
        values, threshold = images_BCHW[n].ravel(), threshold_B[n]
        for j in range(values.shape[0]):
            values[j] = ONE - values[j] if values[j] >= threshold else values[j]


@kernel
def posterize(images_BCHW, index_N, step_B):
    for n in index_N:
        values, step = images_BCHW[n].ravel(), step_B[n]
        parts = ONE / step
        for j in range(values.shape[0]):
            level = np.floor(values[j] * np.float32(255.999))
            values[j] = np.floor(level * parts) * step * np.float32(1 / 255)


@kernel
def equalize(images_BCHW, index_N):
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


@kernel
def gaussian_blur(images_BCHW, index_N, sigma_B, radius_B):
    size = images_BCHW.shape[3]
    most = radius_B.max()
    weights_T = np.empty(most + 1, np.float32)
    line = np.empty(size + 2 * most, np.float32)
    across = np.empty(size * size, np.float32)
    for n in index_N:
        sigma, radius = float(sigma_B[n]), radius_B[n]
        total = 1.0
        for t in range(1, radius + 1):
            total += 2 * math.exp(-0.5 * (t / sigma) ** 2)
        total *= 1 + 1e-6  # so that rounding leaves no value above 1
        for t in range(radius + 1):
            weights_T[t] = math.exp(-0.5 * (t / sigma) ** 2) / total
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[n, c].ravel()
            for y in range(size):
                copy(size, line, radius, plane, y * size)
                mirror_ends(line, radius, size)
                _blur_row(
                    size, across, y * size, line, radius, radius, 1, 2 * radius + size, weights_T
                )
            for y in range(size):
                _blur_row(size, plane, y * size, across, y, radius, size, size, weights_T)


@kernel
def _blur_row(count, out, to, source, middle, radius, stride, size, weights_T):
    """Weighted sum of stretches up to `radius` strides from the middle one, two pairs a turn."""
    center, near = weights_T[0], weights_T[1]
    here = middle * stride
    first, second = _pair(middle, 1, stride, size)
    if radius == 1:
        for i in range(count):
            pair = source[at(first, i)] + source[at(second, i)]
            out[at(to, i)] = center * source[at(here, i)] + near * pair
        return
    third, fourth = _pair(middle, 2, stride, size)
    far = weights_T[2]
    for i in range(count):
        pair = source[at(first, i)] + source[at(second, i)]
        other = source[at(third, i)] + source[at(fourth, i)]
        out[at(to, i)] = center * source[at(here, i)] + near * pair + far * other
    for t in range(3, radius, 2):
        first, second = _pair(middle, t, stride, size)
        third, fourth = _pair(middle, t + 1, stride, size)
        near, far = weights_T[t], weights_T[t + 1]
        for i in range(count):
            pair = source[at(first, i)] + source[at(second, i)]
            other = source[at(third, i)] + source[at(fourth, i)]
            out[at(to, i)] += near * pair + far * other
    if radius % 2:
        first, second = _pair(middle, radius, stride, size)
        for i in range(count):
            pair = source[at(first, i)] + source[at(second, i)]
            out[at(to, i)] += weights_T[radius] * pair


@kernel
def _pair(middle, distance, stride, size):
    return (
        mirrored(middle - distance, size) * stride,
        mirrored(middle + distance, size) * stride,
    )


@kernel
def sharpen(images_BCHW, index_N, factor_B):
    height, width = images_BCHW.shape[2:]
    above, here = np.empty(width, np.float32), np.empty(width, np.float32)
    columns = np.empty(width, np.float32)
    for n in index_N:
        factor = factor_B[n]
        rest = (ONE - factor) * np.float32(1 / 13)
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[n, c].ravel()
            copy(width, above, 0, plane, 0)
            for y in range(1, height - 1):
                row = y * width
                copy(width, here, 0, plane, row)
                for x in range(width):
                    columns[at(0, x)] = above[at(0, x)] + here[at(0, x)] + plane[at(row + width, x)]
                for x in range(width - 2):
                    center = here[at(1, x)]
                    total = columns[at(0, x)] + columns[at(1, x)] + columns[at(2, x)]
                    total += np.float32(4) * center
                    plane[at(row + 1, x)] = clip(factor * center + rest * total)
                copy(width, above, 0, here, 0)


@kernel
def motion_blur(images_BCHW, index_N, kernels_BTT):
    height, width = images_BCHW.shape[2:]
    side = kernels_BTT.shape[1]
    radius = side // 2
    padded_width = width + 2 * radius
    padded = np.empty((height + 2 * radius) * padded_width, np.float32)
    line, row = np.empty(padded_width, np.float32), np.empty(width, np.float32)
    for n in index_N:
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[n, c].ravel()
            for y in range(height + 2 * radius):
                copy(width, line, radius, plane, mirrored(y - radius, height) * width)
                mirror_ends(line, radius, width)
                copy(padded_width, padded, y * padded_width, line, 0)
            for y in range(height):
                row[:] = ZERO
                for v in range(side):
                    for u in range(side):
                        weight = kernels_BTT[n, v, u]
                        if weight != 0:
                            add_scaled(width, row, 0, padded, (y + v) * padded_width + u, weight)
                for x in range(width):
                    plane[at(y * width, x)] = clip(row[x])


@kernel
def blend_edges(images_BCHW, index_N, blend_B):
    channels, height, width = images_BCHW.shape[1:]
    area, padded_width = height * width, width + 2
    gray = np.empty((height + 2) * padded_width, np.float32)
    edges = np.empty(width, np.float32)
    for n in index_N:
        image, blend = images_BCHW[n].ravel(), blend_B[n]
        for y in range(height):
            row, line = y * width, (y + 1) * padded_width
            for c in range(channels):
                weight = ONE / np.float32(channels)
                if channels == 3:
                    weight = RED if c == 0 else GREEN if c == 1 else BLUE
                for x in range(width):
                    before = ZERO if c == 0 else gray[at(line + 1, x)]
                    gray[at(line + 1, x)] = before + weight * image[at(c * area + row, x)]
            gray[line], gray[line + width + 1] = gray[line + 1], gray[line + width]
        copy(padded_width, gray, 0, gray, padded_width)
        copy(padded_width, gray, (height + 1) * padded_width, gray, height * padded_width)
        for y in range(height):
            _sobel_row(width, gray, y * padded_width, padded_width, edges)
            for c in range(channels):
                row = c * area + y * width
                for x in range(width):
                    value = image[at(row, x)]
                    image[at(row, x)] = value + blend * (edges[x] - value)


@kernel
def _sobel_row(count, gray, start, stride, out):
    """Magnitude from the three rows that start `stride` apart."""
    two = np.float32(2)
    for x in range(count):
        above, here, below = at(start, x), at(start + stride, x), at(start + 2 * stride, x)
        left = gray[above] + two * gray[here] + gray[below]
        right = gray[at(above, 2)] + two * gray[at(here, 2)] + gray[at(below, 2)]
        top = gray[above] + two * gray[at(above, 1)] + gray[at(above, 2)]
        bottom = gray[below] + two * gray[at(below, 1)] + gray[at(below, 2)]
        along_x, along_y = right - left, bottom - top
        out[x] = min(np.sqrt(along_x * along_x + along_y * along_y + np.float32(1e-6)), ONE)


@kernel
def cut_out(images_BCHW, index_N, side_B, x_B, y_B):
    height, width = images_BCHW.shape[2:]
    for n in index_N:
        half = side_B[n] / np.float32(2)
        for c in range(images_BCHW.shape[1]):
            plane = images_BCHW[n, c]
            mean = _mean(plane)
            for y in range(height):
                at_y = (np.float32(y) + HALF) / np.float32(height)
                if abs(at_y - y_B[n]) < half:
                    for x in range(width):
                        at_x = (np.float32(x) + HALF) / np.float32(width)
                        if abs(at_x - x_B[n]) < half:
                            plane[y, x] = mean


@kernel
def _mean(plane_HW):
    total = 0.0
    for y in range(plane_HW.shape[0]):
        row = ZERO
        for x in range(plane_HW.shape[1]):
            row += plane_HW[y, x]
        total += row
    return np.float32(total / plane_HW.size)


_TURN = np.float32(np.pi / 65536)  # half of an angle's step
_LN2 = np.float32(np.log(2.0))
_ROOT2 = np.float32(np.sqrt(2.0))
_STRETCH = 512  # numbers treated at a time


@kernel
def _mix(bits):
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
def add_noise(images_BCHW, index_N, std_B, seed_B):
    total = images_BCHW.shape[1] * images_BCHW.shape[2] * images_BCHW.shape[3]
    half = (total + 1) // 2
    position = np.empty(half, np.uint32)
    for i in range(half):
        position[i] = _mix(np.uint32(i + 1))
    bits = np.empty(_STRETCH, np.uint32)
    spare = np.zeros(_STRETCH, np.float32)
    for n in index_N:
        values, seed = images_BCHW[n].ravel(), _mix(np.uint32(seed_B[n]))
        for start in range(0, half, _STRETCH):
            count = min(_STRETCH, half - start)
            for i in range(count):
                bits[at(0, i)] = _mix(np.uint32(position[at(start, i)] ^ seed))
            second = half + start
            if second + count <= total:
                _add_normal(count, bits, values, start, values, second, std_B[n])
            else:  # an odd total leaves the last number without a partner
                copy(total - second, spare, 0, values, second)
                _add_normal(count, bits, values, start, spare, 0, std_B[n])
                copy(total - second, values, second, spare, 0)
