"""DICOM: frames in modality units, with their display window."""

from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
from imagecodecs import jpeg8_decode, jpegls_decode
from pydicom import dcmread, uid
from pydicom.filereader import read_dataset
from pydicom.pixels.decoders.base import DecodeRunner, get_decoder
from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
from pydicom.pixels.utils import pixel_array

from mast.data.formats import Bands, as_bands, refuse_size

# A pydicom plugin, for compressions that it cannot decode with Pillow.
_LS = uid.JPEGLSLossless, uid.JPEGLSNearLossless
_OURS = uid.JPEGExtended12Bit, uid.JPEGLossless, uid.JPEGLosslessSV1, *_LS
DECODER_DEPENDENCIES = dict.fromkeys(_OURS, ("imagecodecs",))


def is_available(_syntax: str) -> bool:
    """Whether the plugin can decode."""
    return True


def decode_frame(content: bytes, runner: DecodeRunner) -> bytes:
    """One frame as bytes; allocates no more than the declared pixels."""
    if not content.rstrip(b"\0").endswith(b"\xff\xd9"):  # CharLS would search for seconds
        raise ValueError("a frame that is cut off")
    colors = runner.samples_per_pixel
    shape = (runner.rows, runner.columns, *[colors] * (colors > 1))
    values = np.empty(shape, f"u{runner.bits_allocated // 8}")
    (jpegls_decode if runner.transfer_syntax in _LS else jpeg8_decode)(content, out=values)
    if colors > 1:
        runner.set_option("planar_configuration", 0)
    return values.tobytes()


for syntax in _OURS:
    get_decoder(syntax).add_plugin("imagecodecs", (__name__, "decode_frame"))


def read_dicom(file: BinaryIO, page: int, max_pixels: int | None = None) -> Bands:
    """A frame of a DICOM."""
    file.seek(132)
    meta = read_dataset(file, False, True, stop_when=lambda tag, *_: tag >> 16 != 2)
    if meta.get("TransferSyntaxUID") in (None, uid.DeflatedExplicitVRLittleEndian):
        raise ValueError("a DICOM that is deflated as a whole, or does not say how it is written")
    file.seek(0)
    dicom = dcmread(file, stop_before_pixels=True)
    if "Rows" not in dicom:
        raise ValueError("a DICOM without an image")
    refuse_size(dicom.Columns, dicom.Rows, max_pixels)
    pages, bits = int(dicom.get("NumberOfFrames") or 1), dicom.get("BitsStored")
    values = pixel_array(file, index=page)
    if dicom.PhotometricInterpretation == "PALETTE COLOR":
        values, bits = apply_color_lut(values, dicom)[..., :3], None
    if values.ndim == 3:
        return replace(as_bands(values, bits), pages=range(pages))
    padding = [] if "PixelPaddingRangeLimit" in dicom else dicom.get("PixelPaddingValue", [])
    no_data = np.ravel(padding)
    units = _part(dicom, page, "PixelValueTransformationSequence", "RescaleSlope")
    slope, intercept = units.get("RescaleSlope", 1), units.get("RescaleIntercept", 0)
    if (slope, intercept) != (1, 0) or "ModalityLUTSequence" in units:
        values, no_data = (apply_modality_lut(of, units) for of in (values, no_data))
        values, bits = values.astype(np.float32) if values.dtype.kind == "f" else values, None
    return replace(
        as_bands(values[..., None], bits, *no_data),
        inverted=dicom.PhotometricInterpretation == "MONOCHROME1",
        window=_window(_part(dicom, page, "FrameVOILUTSequence", "WindowWidth")),
        pages=range(pages),
    )


def _part(dicom: Any, page: int, sequence: str, keyword: str) -> Any:
    """The data set that has an element: that of the frame, of all frames, or the whole file."""
    frames = dicom.get("PerFrameFunctionalGroupsSequence", [])[page : page + 1]
    groups = (*frames, *dicom.get("SharedFunctionalGroupsSequence", []))
    parts = (part for group in groups for part in group.get(sequence, []))
    return next((part for part in parts if keyword in part), dicom)


def _window(dicom: Any) -> tuple[float, float] | None:
    """The first element that exists."""
    center, width = (np.ravel(dicom.get(f"Window{of}", [])) for of in ("Center", "Width"))
    if not (len(center) and len(width) and width[0] > 0):
        return None
    low, high = (float(center[0] + side * width[0] / 2) for side in (-1, 1))
    exact = dicom.get("VOILUTFunction") == "LINEAR_EXACT" or width[0] <= 1
    return low, high - (not exact)
