"""Images on disk, by name or generated → canvases in memory → batches in a known order."""

from mast.data.canvas import CanvasSet as CanvasSet
from mast.data.canvas import DataConfig as DataConfig
from mast.data.canvas import open_canvas as open_canvas
from mast.data.decode import BrokenImageError as BrokenImageError
from mast.data.photos import open_photos as open_photos
from mast.data.registry import open_source as open_source
from mast.data.registry import set_name as set_name
from mast.data.source import Source as Source
