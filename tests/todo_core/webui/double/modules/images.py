"""Grids and files, without their looks: what is asked for is kept."""

from pathlib import Path

from PIL import Image, ImageFont

labels = []  # of the last grid


class GridAnnotation:
    def __init__(self, text="", is_active=True):
        self.text, self.is_active = text, is_active


def get_font(size):
    return ImageFont.load_default(size)


def image_grid(pictures, batch_size=1, rows=None):
    columns = -(-len(pictures) // rows)
    width, height = pictures[0].size
    grid = Image.new("RGB", (columns * width, rows * height))
    for number, picture in enumerate(pictures):
        assert picture.size == (width, height)
        grid.paste(picture, (number % columns * width, number // columns * height))
    return grid


def draw_grid_annotations(grid, width, height, over, beside, margin=0):
    assert (len(over), len(beside)) == (grid.width // width, grid.height // height)
    labels[:] = [[line.text for line in lines] for lines in over]
    return grid


def save_image(image, path, basename, seed=None, prompt=None, extension="png", info=None, grid=False, p=None):
    file = Path(path) / f"{basename}-{len(list(Path(path).iterdir())):04}.{extension}"
    image.save(file)
    image.already_saved_as = str(file)
    return str(file), None
