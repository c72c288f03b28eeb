"""Verify edits: find an affine map between two images, and check how well they agree under it.

Local features (SIFT) of both images propose maps. The first image is warped onto the second, and
blocks of their Laplacians, which do not depend on tone or color, are correlated where they overlap.
Other photos of the same object also have maps, but agree only partly. What failed: docs/log.md.

Legend: N points of an image, M of another, V variants of a descriptor, H, W pixels of a thumbnail.

Reference:
    Lowe, Distinctive Image Features from Scale-Invariant Keypoints, IJCV 2004, for features and
    the ratio test; Arandjelović and Zisserman, Three things everyone should know to improve object
    retrieval, CVPR 2012, for their square roots.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import cv2
import numpy as np
import torch
from PIL import Image

from mast.core.files import default_cache
from mast.data.canvas import CanvasSet
from mast.data.store import ImageStore, key_of

KEPT, ABOUT = "edits-3", "pairs of images, compared"  # raise the number if the comparison changes
HELD = 3000  # thumbnails in memory, of 360 kB each
SIDE = 320  # longer side of compared images
SMALL = 128  # longer side to which smaller images are enlarged
POINTS, FEWEST, FEWEST_BLOCKS = 400, 8, 3  # points of an image; with fewer, no map is estimated
ENOUGH = 50  # points above which copies must share a map, as pages of text look similar without one
RATIO, TOLERANCE = 0.8, 3.0  # ratio of distances to the nearest two; inlier residual in pixels
BLOCK = 40  # side of a correlated block in pixels
AGREED = 0.7  # median correlation of the blocks of an edit; docs/log.md
DOUBTED = 0.3  # agreement below which close features or hashes do not count
COVERED = 0.3  # correlation below which a block is covered
EDGE = 11  # width of the Laplacian's kernel in pixels
BLURS = 1.5  # sigma of the Laplacian's Gaussian
SOFTER = 1.5  # ratio of Laplacian deviations above which the sharper image is blurred
SIGMAS = (1.5, 2.0, 3.0, 4.0)
FLAT = 0.5  # deviation of a flat Laplacian in gray levels
# Changes by edits, and the property that each affects.
CHANGES = {
    "cropped": "position", "extended": "position", "turned": "orientation",
    "mirrored": "orientation", "stretched": "orientation", "inverted": "color", "gray": "color",
    "recolored": "color", "saturation": "color", "brightness": "color", "blurred": "focus",
    "covered": "parts",
}  # fmt: skip


NEARLY = {"brightness", "saturation", "blurred"}  # changes of near copies
SHOWN = 0.95  # visible share of an image below which it counts as cropped


@final
class Thumbnail:
    """A resized image with its points (N, 2) and descriptors (N, 128), uint8."""

    def __init__(self, image_HWC: np.ndarray) -> None:
        height, width = image_HWC.shape[:2]
        scale = min(1.0, SIDE / max(height, width))
        scale = max(scale, min(SMALL, SIDE) / max(height, width))
        size = (max(8, round(scale * width)), max(8, round(scale * height)))
        resized = Image.fromarray(image_HWC).resize(size, Image.Resampling.LANCZOS)
        self.image_HW3 = np.array(resized.convert("RGB"))
        self.gray_HW = cv2.cvtColor(self.image_HW3, cv2.COLOR_RGB2GRAY)
        # One detector per image, as detectors are not thread-safe.
        sift = cv2.SIFT.create(nfeatures=POINTS, contrastThreshold=0.01)
        points, found = sift.detectAndCompute(self.gray_HW, None)
        self.points_N2 = np.array([each.pt for each in points], np.float32).reshape(-1, 2)
        self.found_NF = np.zeros((0, 128), np.uint8) if found is None else found.astype(np.uint8)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.gray_HW.shape[1], self.gray_HW.shape[0]

    def descriptors(self) -> np.ndarray:
        """Root-SIFT: descriptors as unit vectors (N, 128)."""
        found_NF = self.found_NF.astype(np.float32)
        return np.sqrt(found_NF / np.maximum(found_NF.sum(axis=1, keepdims=True), 1))


class Edit(NamedTuple):
    """Differences of a second image from a first.

    Attributes:
        agreement: Median correlation of the Laplacians' blocks under the map, at most 1; NaN if
            nearly all are flat.
        points: Points that agree on the map; 0 if it maps the whole image onto the whole other one.
        scale_x, shear_y, shear_x, scale_y, left, top: The map of points (x, y), in units of each
            image's longer side: x' = scale_x x + shear_x y + left, y' = shear_y x + ….
        seen: Share of the first image that the second shows.
        filled: Share of the second image covered by the first.
        plain: 1 if the rest of the second has one color.
        inverted: 1 if the second is a negative.
        saturation, other_saturation: Mean chroma of both in the overlap, in gray levels.
        hue: Mean distance of their chroma after scaling both equally, in gray levels.
        brighter, contrast: Mean and deviation of the second's gray levels relative to the first's.
        sharper: Deviation of the second's Laplacian relative to the first's.
        covered: Share of blocks that do not agree.
    """

    agreement: float
    points: float = 0.0
    scale_x: float = 1.0
    shear_y: float = 0.0
    shear_x: float = 0.0
    scale_y: float = 1.0
    left: float = 0.0
    top: float = 0.0
    seen: float = 1.0
    filled: float = 1.0
    plain: float = 0.0
    inverted: float = 0.0
    saturation: float = 0.0
    other_saturation: float = 0.0
    hue: float = 0.0
    brighter: float = 0.0
    contrast: float = 1.0
    sharper: float = 1.0
    covered: float = 0.0

    def changes(self) -> dict[str, str]:
        """The changes, by their name in `CHANGES`, with their amount in words."""
        linear_22 = np.array([[self.scale_x, self.shear_x], [self.shear_y, self.scale_y]])
        mirrored = np.linalg.det(linear_22) < 0
        upright_22 = linear_22 @ np.diag([-1.0, 1.0]) if mirrored else linear_22
        turn = math.degrees(math.atan2(upright_22[1, 0] - upright_22[0, 1], np.trace(upright_22)))
        long, short = np.linalg.svd(linear_22, compute_uv=False)
        upside_down = mirrored and abs(turn) > 178
        found = dict[str, str]()
        if self.seen < SHOWN:
            found["cropped"] = f"cropped to {100 * self.seen:.0f} %"
        if self.filled < SHOWN:
            share = f"{100 * self.filled:.0f} %"
            found["extended"] = f"with a border: {share} is the photo" if self.plain else (
                f"shows {100 - 100 * self.filled:.0f} % more")  # fmt: skip
        if mirrored:
            found["mirrored"] = "flipped upside down" if upside_down else "mirrored"
        if abs(turn) > 2 and not upside_down:
            found["turned"] = f"turned by {turn:.0f}°"
        if long > 1.04 * short:
            found["stretched"] = f"stretched by {long / short:.2f}"
        less, more = sorted((self.saturation, self.other_saturation))
        if self.inverted:
            found["inverted"] = "inverted"
        elif more > 2.5 and less < 0.2 * more:
            found["gray"] = "gray" if self.other_saturation == less else "colored"
        elif self.hue > max(3.0, 0.5 * more + 1):
            found["recolored"] = "recolored"
        elif more > 5 and not 0.67 < (by := self._saturated) < 1.5:
            found["saturation"] = "more saturated" if by > 1 else "less saturated"
        if not self.inverted and abs(self.brighter) > 15:
            found["brightness"] = "brighter" if self.brighter > 0 else "darker"
        elif not self.inverted and not 0.75 < self.contrast < 1.33:
            found["brightness"] = "more contrast" if self.contrast > 1 else "less contrast"
        if self.sharper < 0.6 and self.contrast > 0.6:
            found["blurred"] = "blurred"
        if self.covered > 0.1:
            found["covered"] = f"{100 * self.covered:.0f} % covered"
        return found

    @property
    def scale(self) -> float:
        """Scale factor, relative to the longer sides."""
        determinant = self.scale_x * self.scale_y - self.shear_x * self.shear_y
        return math.sqrt(abs(determinant))

    @property
    def _saturated(self) -> float:
        """Growth of chroma relative to contrast, as a darker image has less of both."""
        return self.other_saturation / max(self.saturation * self.contrast, 1e-6)

    @property
    def is_near(self) -> bool:
        """Whether the image was only compressed, resized or retouched, not moved or recolored."""
        return not {*self.changes()} - NEARLY


@final
class EditFinder:
    """Compares pairs of a set's images; results are cached by the images' content.

    Attributes:
        device: Device for comparing many images at once.
    """

    def __init__(self, canvases: CanvasSet, device: torch.device | str = "cpu") -> None:
        self.canvases, self.device = canvases, torch.device(device)
        self.store = ImageStore(default_cache())
        self.thumbnail = functools.lru_cache(HELD)(self._opened)

    def _opened(self, at: int) -> Thumbnail:
        return Thumbnail(self.canvases.batch([at]).image(0).numpy())

    def __call__(self, pairs: Sequence[tuple[int, int]]) -> list[Edit]:
        """Differences of the second image of each pair of positions from the first."""
        of = self.canvases.keys
        keys = [key_of(of[first], of[second]) for first, second in pairs]

        def look(at: int) -> Edit:
            first, second = pairs[at]
            return edit_between(self.thumbnail(first), self.thumbnail(second))

        rows_PE = self.store.computed(KEPT, keys, look, ("comparing pairs", "pairs"), ABOUT)
        return [Edit(*row_E) for row_E in rows_PE.tolist()]


def edit_between(first: Thumbnail, second: Thumbnail) -> Edit:
    """Differences of the second image; for images that do not agree, only the agreement."""
    maps = [*_maps(first, second)]
    if min(len(first.found_NF), len(second.found_NF)) < ENOUGH:
        maps.insert(0, _whole(first, second))
    if not maps:
        return Edit(0.0)
    detail_HW = _laplacian(second.gray_HW)
    overlaps = [_Overlap.of(first, second, detail_HW, *each) for each in maps]
    best = max(overlaps, key=_Overlap.rank)
    if best.agreement < DOUBTED:
        return Edit(best.agreement, best.points)
    return _described(first, second, detail_HW, best)  # agreement may be NaN


class _Overlap(NamedTuple):
    """Overlap of two images under a map, and the correlation of each block, or NaN."""

    map_23: np.ndarray
    points: int
    inverted: bool
    inside_HW: np.ndarray
    correlation_RC: np.ndarray

    @property
    def agreement(self) -> float:
        known = self.correlation_RC[~np.isnan(self.correlation_RC)]
        return float(np.median(known)) if len(known) >= FEWEST_BLOCKS else math.nan

    def rank(self) -> float:
        """Score to choose among maps; prefers maps of points."""
        return -2 if math.isnan(self.agreement) else self.agreement + 0.05 * (self.points > 0)

    @property
    def covered(self) -> float:
        """Share of blocks that do not agree."""
        known = self.correlation_RC[~np.isnan(self.correlation_RC)]
        return float((known < COVERED).mean()) if len(known) >= FEWEST_BLOCKS else 0.0

    def alike_HW(self) -> np.ndarray:
        """Overlap of two images, without blocks that do not agree."""
        hidden_RC = self.correlation_RC < COVERED
        hidden_HW = hidden_RC.repeat(BLOCK, axis=0).repeat(BLOCK, axis=1)
        height, width = self.inside_HW.shape
        return self.inside_HW & ~hidden_HW[:height, :width]

    @classmethod
    def of(
        cls, first: Thumbnail, second: Thumbnail, detail_HW: np.ndarray,
        map_23: np.ndarray, points: int, inverted: bool,
    ) -> _Overlap:  # fmt: skip
        warped_HW = _warped(first.gray_HW, map_23, second)
        inside_HW = _warped(np.full_like(first.gray_HW, 255), map_23, second) > 250
        core_HW = cv2.erode(inside_HW.astype(np.uint8), np.ones((EDGE, EDGE), np.uint8)) > 0
        ends = _equally_sharp(_laplacian(warped_HW), detail_HW, core_HW)
        found = _by_block(*ends, core_HW)
        return cls(map_23, points, inverted, inside_HW, -found if inverted else found)


def _whole(first: Thumbnail, second: Thumbnail) -> tuple[np.ndarray, int, bool]:
    """The map of the whole first image onto the whole second one, in the form of `_maps`.

    With too few points for another map, quarter turns and mirroring are tried.
    """
    across, down = (b / a for a, b in zip(first.size, second.size, strict=True))
    middle_2, other_2 = ((np.array(each.size) - 1) / 2 for each in (first, second))
    turns = [np.eye(2)]
    if min(len(first.found_NF), len(second.found_NF)) < FEWEST:
        signs = [np.diag(each) for each in itertools.product((1, -1), repeat=2)]
        turns = list(signs) + [sign[::-1] for sign in signs]
    maps = []
    for turn_22 in turns:
        sides = (across, down) if turn_22[0, 0] else second.size / np.array(first.size[::-1])
        linear_22 = turn_22 * np.reshape(sides, (2, 1))
        maps.append(np.column_stack([linear_22, other_2 - linear_22 @ middle_2]))
    far = [cv2.absdiff(_warped(first.gray_HW, each, second), second.gray_HW).mean()
           for each in maps]  # fmt: skip
    best = int(np.argmin(far))
    return maps[best if far[best] < far[0] / 2 else 0], 0, False


def mirrored(found_NF: np.ndarray) -> np.ndarray:
    """Descriptors (N, 128) of the mirrored image: rows of cells and directions are reversed."""
    return found_NF.reshape(-1, 4, 4, 8)[:, ::-1][..., -np.arange(8) % 8].reshape(-1, 128)


def _maps(first: Thumbnail, second: Thumbnail) -> Iterator[tuple[np.ndarray, int, bool]]:
    """The two maps (2, 3) with most inliers, their inliers, and whether they match a negative.

    Mirrored images and negatives need no features of their own. A descriptor has 4 × 4 cells of 8
    directions relative to its point's direction. Mirroring reverses the rows of cells and the
    directions; a negative has opposite gradients, which reverses rows and columns of cells.
    """
    if min(len(first.found_NF), len(second.found_NF)) < FEWEST:
        return
    cells_N448 = first.descriptors().reshape(-1, 4, 4, 8)
    mirrored_N448 = mirrored(cells_N448).reshape(cells_N448.shape)
    variants = [cells_N448, mirrored_N448, cells_N448[:, ::-1, ::-1], mirrored_N448[:, ::-1, ::-1]]
    near_VNM = np.stack([each.reshape(-1, 128) for each in variants]) @ second.descriptors().T
    at_VN1 = near_VNM.argmax(axis=2)[..., None]
    best_VN = np.take_along_axis(near_VNM, at_VN1, axis=2)[..., 0]
    np.put_along_axis(near_VNM, at_VN1, -1.0, axis=2)
    good_VN = np.maximum(1 - best_VN, 0) < RATIO**2 * (1 - near_VNM.max(axis=2))
    found = []
    for variant, (good_N, at_N1) in enumerate(zip(good_VN, at_VN1, strict=True)):
        if good_N.sum() < FEWEST:
            continue
        ends = first.points_N2[good_N], second.points_N2[at_N1[good_N, 0]]
        map_23, inlier_N1 = cv2.estimateAffine2D(
            *ends, method=cv2.RANSAC, ransacReprojThreshold=TOLERANCE, confidence=0.995
        )
        if map_23 is not None and inlier_N1.sum() >= FEWEST:
            determinant = np.linalg.det(map_23[:, :2])
            if 0.02 < abs(determinant) < 50 and (determinant < 0) == (variant % 2 == 1):
                found.append((int(inlier_N1.sum()), variant, map_23))
    for points, variant, map_23 in sorted(found, key=lambda each: each[:2], reverse=True)[:2]:
        yield map_23, points, variant > 1


def _described(
    first: Thumbnail, second: Thumbnail, detail_HW: np.ndarray, overlap: _Overlap
) -> Edit:
    """All measurements of an edit."""
    map_23, inside_HW = overlap.map_23, overlap.inside_HW
    warped_HW3 = _warped(first.image_HW3, map_23, second)
    one_HW = cv2.cvtColor(warped_HW3, cv2.COLOR_RGB2GRAY)
    alike_HW = overlap.alike_HW()
    ends = one_HW[alike_HW].astype(np.float32), second.gray_HW[alike_HW].astype(np.float32)
    detail = _laplacian(one_HW)[alike_HW], detail_HW[alike_HW]
    one_P2, other_P2 = (_chroma(each)[alike_HW] for each in (warped_HW3, second.image_HW3))
    # A darker image has less chroma, of the same hue.
    scale = np.clip((one_P2 * other_P2).sum() / max((one_P2**2).sum(), 1e-6), 0.3, 3)
    rest_3 = second.image_HW3[~inside_HW].astype(np.float32)
    plain = len(rest_3) > 0 and np.abs(rest_3 - np.median(rest_3, axis=0)).mean() < 8
    shown = inside_HW.sum() / abs(np.linalg.det(map_23[:, :2])) / first.gray_HW.size
    longer = [max(each.size) for each in (first, second)]
    (scale_x, shear_x), (shear_y, scale_y) = (map_23[:, :2] * longer[0] / longer[1]).tolist()
    left, top = (map_23[:, 2] / longer[1]).tolist()
    return Edit(
        overlap.agreement, overlap.points, scale_x, shear_y, shear_x, scale_y, left, top,
        seen=min(1.0, float(shown)),
        filled=float(inside_HW.mean()),
        plain=float(plain),
        inverted=float(overlap.inverted),
        saturation=float(np.linalg.norm(one_P2, axis=1).mean()),
        other_saturation=float(np.linalg.norm(other_P2, axis=1).mean()),
        hue=float(np.linalg.norm(scale * one_P2 - other_P2, axis=1).mean()),
        brighter=float(ends[1].mean() - ends[0].mean()),
        contrast=float(ends[1].std() / max(ends[0].std(), 1e-6)),
        sharper=float(detail[1].std() / max(detail[0].std(), 1e-6)),
        covered=overlap.covered,
    )  # fmt: skip


def _warped(image_HWC: np.ndarray, map_23: np.ndarray, second: Thumbnail) -> np.ndarray:
    return cv2.warpAffine(image_HWC, map_23, second.size, flags=cv2.INTER_AREA)


def _laplacian(gray_HW: np.ndarray) -> np.ndarray:
    return cv2.Laplacian(cv2.GaussianBlur(gray_HW.astype(np.float32), (0, 0), BLURS), cv2.CV_32F)


def _equally_sharp(
    one_HW: np.ndarray, other_HW: np.ndarray, inside_HW: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Laplacians; the sharper one is blurred until their deviations differ by at most `SOFTER`."""
    ends = [one_HW, other_HW]
    for sigma in SIGMAS:
        spread = [float(each[inside_HW].std()) if inside_HW.any() else 0.0 for each in ends]
        if SOFTER * min(spread) >= max(spread):
            break
        sharper = int(spread[1] > spread[0])
        ends[sharper] = cv2.GaussianBlur(ends[sharper], (0, 0), sigma)
    return ends[0], ends[1]


def _chroma(image_HW3: np.ndarray) -> np.ndarray:
    """Chroma, colors without brightness: (H, W, 2)."""
    return cv2.cvtColor(image_HW3, cv2.COLOR_RGB2YCrCb)[..., 1:].astype(np.float32) - 128


def _by_block(one_HW: np.ndarray, other_HW: np.ndarray, inside_HW: np.ndarray) -> np.ndarray:
    """Correlation of each block; NaN if most of it lies outside, or both images are flat there."""
    height, width = inside_HW.shape
    rows, columns = -(-height // BLOCK), -(-width // BLOCK)
    rest = ((0, rows * BLOCK - height), (0, columns * BLOCK - width))

    def means(values_HW: np.ndarray) -> np.ndarray:
        blocks = np.pad(values_HW, rest).reshape(rows, BLOCK, columns, BLOCK)
        return blocks.mean(axis=(1, 3), dtype=np.float32)

    share = means(inside_HW.astype(np.float32))
    known = (share > min(0.5, 0.5 * float(share.max()))) & (share > 0.02)
    one_HW, other_HW = one_HW * inside_HW, other_HW * inside_HW
    of = np.maximum(share, 1e-6)
    one, other = means(one_HW) / of, means(other_HW) / of
    spread = np.maximum(means(one_HW**2) / of - one**2, 0), means(other_HW**2) / of - other**2
    both = means(one_HW * other_HW) / of - one * other
    known &= np.maximum(*spread) > FLAT**2
    return np.where(known, both / np.sqrt(np.maximum(spread[0] * spread[1], 1e-6)), np.nan)
