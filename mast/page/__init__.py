"""Self-contained HTML pages of a run or of found images."""

from mast.page.gallery import GalleryRow as GalleryRow
from mast.page.gallery import Item as Item
from mast.page.gallery import Searched as Searched
from mast.page.gallery import Thumbnails as Thumbnails
from mast.page.gallery import View as View
from mast.page.gallery import write_gallery as write_gallery
from mast.page.html import is_page as is_page
