"""Encoders as they are used: by name to a module, and the features that it gives of images."""
