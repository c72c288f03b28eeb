"""Encoders, projectors and masks."""

from mast.models.classifier import Classifier as Classifier
from mast.models.classifier import load_classifier as load_classifier
from mast.models.encoders import Encoder as Encoder
from mast.models.encoders import EncoderConfig as EncoderConfig
from mast.models.encoders import load_encoder as load_encoder
from mast.models.encoders import save_encoder as save_encoder
from mast.models.heads import MLP as MLP
from mast.models.heads import MLPConfig as MLPConfig
