"""Finding objects: detectors over an encoder, trained by the one loop, scored by COCO's tools."""

from paper.protocols.detection.protocol import Detection, Segmentation

__all__ = ["Detection", "Segmentation"]
