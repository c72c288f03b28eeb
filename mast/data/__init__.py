"""Images on disk, by name or generated → canvases in memory → batches in a known order."""

from mast.data.annotated import Annotated as Annotated
from mast.data.annotated import Objects as Objects
from mast.data.annotated import joined as joined
from mast.data.annotated import with_objects as with_objects
from mast.data.cache import kept as kept
from mast.data.canvas import CanvasSet as CanvasSet
from mast.data.canvas import DataConfig as DataConfig
from mast.data.canvas import canvas_size as canvas_size
from mast.data.canvas import open_canvas as open_canvas
from mast.data.decode import BrokenImageError as BrokenImageError
from mast.data.decode import read_canvas as read_canvas
from mast.data.factors import Factors as Factors
from mast.data.files import open_files as open_files
from mast.data.folder import SPLIT_NAMES as SPLIT_NAMES
from mast.data.folder import Folder as Folder
from mast.data.loader import Batch as Batch
from mast.data.loader import Loader as Loader
from mast.data.partition import WHOLE as WHOLE
from mast.data.source import Scheme as Scheme
from mast.data.source import SetDescription as SetDescription
from mast.data.source import Source as Source
from mast.data.sources import SOURCES as SOURCES
from mast.data.sources import default_cache as default_cache
from mast.data.sources import describe as describe
from mast.data.sources import open_source as open_source
from mast.data.toys import Toys as Toys
