"""Scales a picture to a model's square, by the model's rules."""

from PIL import Image

from tandem.model_io.pictures.image_rules import Fit, ImageRules, Transparency

Box = tuple[float, float, float, float]


def scaled_size(size: tuple[int, int], rules: ImageRules) -> tuple[int, int]:
    """Returns the width and height to scale a picture of this size to, both at least 1.

    >>> scaled_size((400, 300), ImageRules(size=100))
    (100, 75)
    >>> scaled_size((400, 300), ImageRules(size=100, fit=Fit.SQUASH))
    (100, 100)
    >>> scaled_size((400, 300), ImageRules(size=100, fit=Fit.CROP, resize_to=110))
    (146, 110)
    """
    if rules.fit is Fit.SQUASH:
        width, height = rules.squash_to or (rules.size, rules.size)
        return width, height
    if rules.fit is Fit.CROP:
        shorter, goal = min(size), rules.resize_to or rules.size
        # Rounded down, as hub processors do.
        width, height = (goal if side == shorter else int(goal * side / shorter) for side in size)
        return width, height
    scale = rules.size / max(size)
    width, height = (max(1, round(side * scale)) for side in size)
    return width, height


def scaled(
    image: Image.Image,
    target: tuple[int, int],
    box: Box,
    rules: ImageRules,
    reducing_gap: float | None,
) -> Image.Image:
    """Returns the part of the picture in `box`, scaled to the target size.

    With a gap, a picture that is much too large is first reduced by whole blocks. A picture of the
    right size is unchanged.
    """
    # Pillow weights RGBA by alpha, so colours under transparent pixels do not bleed.
    return image.resize(target, Image.Resampling[rules.filter.name], box, reducing_gap)


def squared(image: Image.Image, rules: ImageRules) -> Image.Image:
    """Returns the square of an upright, scaled picture, RGB: cut out, or centred on white."""
    left, top = ((rules.size - side) // 2 for side in image.size)
    if rules.fit is not Fit.LETTERBOX:
        # Cut like numpy's slices of hub processors: half of what is left over, rounded down.
        left, top = (-((side - rules.size) // 2) for side in image.size)
    square = Image.new("RGB", (rules.size, rules.size), "white")
    square.paste(image, (left, top), image if image.mode == "RGBA" else None)
    return square


def on_white(image: Image.Image) -> Image.Image:
    """Returns the picture with transparent parts blended onto white, as a viewer shows it."""
    if image.mode != "RGBA":
        return image
    opaque = Image.new("RGB", image.size, "white")
    opaque.paste(image, (0, 0), image)
    return opaque


def colour_mode(image: Image.Image, rules: ImageRules) -> str:
    """Returns "RGBA" if parts may be transparent, and are to be blended; else "RGB"."""
    is_blended = rules.transparency is Transparency.WHITE and image.has_transparency_data
    return "RGBA" if is_blended else "RGB"
