"""InfoMin: MoCo v2 by two queries of one key, the image and a jigsaw of its pieces.

Shapes: B images of this process, N keys of the queue, D dimensions of the embedding, S pieces of an
image, P pixels along a side of a piece.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.core.collectives import gather
from mast.losses import contrast
from mast.losses.precision import product
from mast.methods.base import Method, MethodConfig, output_of, spread
from mast.methods.parts import HostInputs, Images, Noise, Queue, Teacher
from mast.models import MLP, MLPConfig

SIDE = 3  # cells of a jigsaw along each side of an image
PIECES = SIDE**2


@dataclass
class InfoMinConfig(MethodConfig):
    """The two contrasts of InfoMin. The momentum stays as it is.

    Attributes:
        jigsaw: Share of the loss that is the jigsaw's.
    """

    needs_whole_batch = "its queue would take in each part of the batch before the next"

    takes = (3, 3)
    limits: ClassVar = {"jigsaw": "[0, 1]"}
    projector: MLPConfig = field(default_factory=lambda: MLPConfig(2048, 128))
    temperature: float = 0.15
    momentum: float = 0.999
    queue: int = 65536
    jigsaw: float = 0.5


class InfoMin(Method):
    """Tian et al.: What Makes for Good Views for Contrastive Learning (NeurIPS 2020).

    Views with little in common, and PIRL's jigsaw (Misra, van der Maaten, CVPR 2020) as a second
    query of the same key: the third view is cut into 3 x 3 cells, of each a square of three
    quarters of its side is encoded, and a layer over the nine in a random order gives one
    embedding. As in the official code (HobbitLong/PyContrast), where pieces are of 64 pixels of an
    image of 255.
    """

    config: InfoMinConfig
    unit_length = True

    def build(self) -> None:
        config, encoder = self.config, self.encoder
        encoder.check_side(side_of_piece(encoder.size))
        sizes, dim = config.projector, config.projector.dim
        self.projector, self.of_pieces = (
            MLP(encoder.dim, sizes, layers=2, inner_norm=False, bias=True) for _ in range(2)
        )
        self.of_jigsaw = nn.Linear(PIECES * dim, dim)
        self.teacher = Teacher(encoder, self.projector, config.momentum, rises=False)
        self.queue = Queue(config.queue, dim, self.seed)
        self.noise = Noise(self.seed, 3 * PIECES)  # two numbers for its place, one for the order

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """Two terms, "contrast" and "jigsaw"."""
        query, key, whole = images
        key_BD = F.normalize(self.teacher(key), dim=1)
        key_ND = self.queue.key_ND.clone()  # a push changes the queue
        share, query_BD = self.config.jigsaw, self.embed(query)
        solved_BD = self._solved(whole, inputs["noise_0"])
        terms = {
            "contrast": (1 - share) * self._contrast(query_BD, key_BD, key_ND),
            "jigsaw": share * self._contrast(solved_BD, key_BD, key_ND),
        }
        keys = gather(key_BD)
        self.queue.push(keys)
        return output_of(terms, spread=spread(keys))

    def _contrast(self, query_BD: Tensor, key_BD: Tensor, key_ND: Tensor) -> Tensor:
        positive_B = (query_BD * key_BD).sum(dim=1)
        return contrast(positive_B, product(query_BD, key_ND.T), self.config.temperature)

    def _solved(self, images_BCHW: Tensor, noise_BN: Tensor) -> Tensor:
        """One embedding of the shuffled pieces of each image, of unit length."""
        count = len(images_BCHW)
        pieces = pieces_of(images_BCHW, noise_BN[:, : 2 * PIECES].unflatten(1, (PIECES, 2)))
        piece_BSD = self.of_pieces(self.encoder(pieces.flatten(0, 1))).unflatten(0, (count, PIECES))
        order_BS = noise_BN[:, 2 * PIECES :].argsort(dim=1)
        shuffled = piece_BSD.gather(1, order_BS[..., None].expand_as(piece_BSD))
        return F.normalize(self.of_jigsaw(shuffled.flatten(1)).float(), dim=1)

    def get_extra_state(self) -> Tensor:  # what is drawn next does not follow from weights
        return torch.tensor(self.noise.seed)

    def set_extra_state(self, state: Tensor) -> None:
        self.noise.seed = int(state)


def side_of_piece(size: int) -> int:
    """Of a piece of an image of this side, in pixels: three quarters of its cell."""
    return round(size / 4)


def pieces_of(images_BCHW: Tensor, place_BS2: Tensor) -> Tensor:
    """Squares out of the 3 x 3 cells of square images, row by row.

    Args:
        images_BCHW: Images of 3 pixels and more a side, H.
        place_BS2: Where in its cell each lies, down and right, in [0, 1).

    Returns:
        (B, S, C, P, P), where P is a quarter of H.
    """
    size = images_BCHW.shape[-1]
    cell, side = size // SIDE, side_of_piece(size)
    corner_S2 = cell * torch.cartesian_prod(*2 * [torch.arange(SIDE, device=place_BS2.device)])
    start_BS2 = corner_S2 + (place_BS2 * (cell - side + 1)).long()
    within_P = torch.arange(side, device=place_BS2.device)
    rows_BSP, columns_BSP = (start_BS2[..., axis, None] + within_P for axis in range(2))
    image_B = torch.arange(len(images_BCHW), device=place_BS2.device)[:, None, None, None]
    pieces_BSPPC = images_BCHW.permute(0, 2, 3, 1)[
        image_B, rows_BSP[..., :, None], columns_BSP[..., None, :]
    ]
    return pieces_BSPPC.permute(0, 1, 4, 2, 3)
