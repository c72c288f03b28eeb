"""OBoW: from views of an image the visual words that a teacher finds in it.

Shapes: B images of this process, L locations of a feature map, C dimensions of the map, D of the
representation, W words.
"""

import math
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.core.arguments import checked
from mast.core.collectives import gather, global_mean, rank
from mast.losses import soft_cross_entropy
from mast.losses.precision import full, product
from mast.methods.base import TWO_OR_MORE, Method, MethodConfig, output_of, spread
from mast.methods.parts import HostInputs, Images, Queue, Teacher
from mast.models import MLP, MLPConfig

DECAY = 0.99  # of the mean distance to the nearest word, which is 0.5 at first
WINDOW = 3  # locations a side, over which a new word is the mean


@dataclass
class OBoWConfig(MethodConfig):
    """The words of OBoW. The momentum rises.

    Attributes:
        words: W, the last local features of the teacher.
        sharpness: By which distances to words are multiplied where words are assigned, in units of
            the mean distance to the nearest one.
        scale: By which the scores of words are multiplied where they are predicted.
    """

    needs_whole_batch = "its words would change with each part of the batch"

    takes = TWO_OR_MORE
    limits: ClassVar = {"words": "[2, inf)", "sharpness": "(0, inf)", "scale": "(0, inf)"}
    words: int = 8192
    sharpness: float = 15.0
    scale: float = 8.0
    momentum: float = 0.99


class OBoW(Method):
    """Gidaris et al.: Online Bag-of-Visual-Words Generation (OBoW, CVPR 2021).

    The teacher sees the first view, the student all others; the loss is the sum over their sizes
    of the mean over the views of one size. Words are of the last feature map alone, officially of
    blocks 3 and 4 of a ResNet. As there, the border of the map is cut off and a new word is the
    mean of 3 x 3 locations, in maps of 5 x 5 and more; its location goes round from image to image.
    """

    config: OBoWConfig
    nearest: Tensor

    def build(self) -> None:
        encoder = self.encoder
        self.generator = MLP(
            encoder.map_dim, MLPConfig(2 * encoder.map_dim, encoder.dim), layers=2, bias=True
        )
        self.teacher = Teacher(encoder, nn.Identity(), self.config.momentum)  # words are of its map
        self.words = Queue(self.config.words, encoder.map_dim, self.seed)
        scale = encoder.map_dim**0.5  # features are not of unit length
        self.words.key_ND.mul_(scale).clamp_(min=0)
        self.register_buffer("nearest", torch.tensor(0.5))

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "bags"."""
        of_teacher, *others = images
        word_WC = self.words.key_ND.clone()  # a push changes the queue
        weight_WD = F.normalize(self.generator(F.normalize(word_WC, dim=1)), dim=1)
        bag_BW = self._bags(of_teacher, word_WC)
        losses = []
        for views in (list(group) for _, group in groupby(others, key=lambda view: view.shape)):
            representation_BD = self.encoder(torch.cat(views)).float()
            score_BW, target = product(representation_BD, weight_WD.T), bag_BW.repeat(len(views), 1)
            losses.append(soft_cross_entropy(score_BW, target, 1 / self.config.scale))
        return output_of(
            {"bags": torch.stack(losses).sum()},
            spread=spread(gather(representation_BD.detach())),
            words_of_an_image=_perplexity(bag_BW).mean(),
            words_of_the_batch=_perplexity(gather(bag_BW).mean(dim=0)),
        )

    @torch.no_grad()
    def _bags(self, images_BCHW: Tensor, word_WC: Tensor) -> Tensor:
        """Bags of these words, (B, W); the teacher's new words replace the oldest."""
        features_BLC = self.teacher.encoder.encode(images_BCHW).features_BLC.float()
        side = math.isqrt(features_BLC.shape[1])
        local_BLC = features_BLC
        if side >= WINDOW + 2 and side**2 == features_BLC.shape[1]:
            map_BCHW = features_BLC.transpose(1, 2).unflatten(2, (side, side))[..., 1:-1, 1:-1]
            features_BLC = map_BCHW.flatten(2).transpose(1, 2)
            local_BLC = F.avg_pool2d(map_BCHW, WINDOW, stride=1).flatten(2).transpose(1, 2)
        squares_BL1 = features_BLC.square().sum(dim=2, keepdim=True)
        product_BLW = product(features_BLC, word_WC.T)
        distance_BLW = squares_BL1 + word_WC.square().sum(dim=1) - 2 * product_BLW
        self.nearest.lerp_(global_mean(distance_BLW.amin(dim=2)), 1 - DECAY)
        count, locations, _ = local_BLC.shape
        own_B = torch.arange(count, device=local_BLC.device)
        place_B = (self.words.next + rank() * count + own_B) % locations
        self.words.push(gather(local_BLC[own_B, place_B]))
        return bag_of_words(distance_BLW, self.config.sharpness / self.nearest)

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The representation itself, from which words are predicted."""
        return self.encoder(images_BCHW).float()


def _perplexity(share: Tensor) -> Tensor:
    """Of how many words as likely as each other a distribution over the last dimension would be."""
    return torch.special.entr(share).sum(dim=-1).exp()


@checked
def bag_of_words(distance_BLW: Tensor, sharpness: float | Tensor) -> Tensor:
    """Which words there are in an image: of each, how surely any of its locations is that word.

    Args:
        distance_BLW: Squared distance of every location to every word, shape (B, L, W).
        sharpness: By which distances are multiplied before the softmax over the words.

    Returns:
        Shape (B, W): the largest assignment of each word over all locations; each row is divided by
        its sum.

    Reference:
        OBoW (Gidaris et al., CVPR 2021), section 3.2, with max-pooling.
    """
    share_BLW = (-sharpness * full(distance_BLW)).softmax(dim=2)
    return F.normalize(share_BLW.amax(dim=1), p=1, dim=1)
