"""Load encoders by name, and compute their features of images."""
