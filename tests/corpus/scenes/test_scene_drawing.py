"""Drawings of scenes: in their areas, side by side, the same for the same scene, and quick."""

import io
from hashlib import sha256
from itertools import combinations

import numpy as np
from hypothesis import given
from PIL import Image

from tandem.corpus.scenes.drawing import (
    SCENE_SIZE,
    PlacedDrawing,
    ScenePng,
    draw_scene,
    place_drawings,
    scene_pixels,
)
from tandem.corpus.scenes.records import Split, scene_family
from tandem.corpus.scenes.scene import Layout, Scene
from tests.support.corpus.made_scenes import any_scenes, drawn_scenes, made_scene

HALF = SCENE_SIZE // 2
# Of the pixels of one scene of family 0 under seed 1. Not of the PNG files, which another zlib
# would write otherwise.
PIXELS_SHA256: dict[Split, str] = {
    "train": "e908622892099a788d6e9a1dfb7f4589a5af8c343844bc4824b39f6c766aafad",
    "test": "c42be677b2a0d984329c346b45ba9f5a6a7e0bdaeed8bbc47fc93851dbc83ae5",
    "test_style": "c9a5db7bdc8fc7c0f207b269b9e45aa2151151d53186b17fabf8e9da7eefcf68",
    "test_concepts": "9be664fef5da2cae349b4c3c74f745a89546ade8bb72a90146d88d2ed3f4526e",
}


def test_a_seed_draws_the_same_scene_as_ever() -> None:
    """The pixels of four scenes are those of the commit that pinned them."""
    drawn = {split: scene_pixels(scene_family(split, 1, 0)[0]) for split in PIXELS_SHA256}

    assert {split: sha256(each.tobytes()).hexdigest() for split, each in drawn.items()} == (
        PIXELS_SHA256
    )


@given(drawn_scenes())
def test_a_scene_reads_as_the_same_bytes_each_time(scene: Scene) -> None:
    """The PNG is one file at every read, and holds exactly the drawn pixels."""
    png_bytes = ScenePng(scene).read()

    assert ScenePng(scene).read() == png_bytes
    with Image.open(io.BytesIO(png_bytes)) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")
        assert np.array_equal(np.asarray(picture), scene_pixels(scene))


@given(any_scenes())
def test_a_scene_has_its_number_of_drawings(scene: Scene) -> None:
    """Each group is drawn as often as it counts, all of one size."""
    placed = list(place_drawings(scene))

    for group in scene.groups:
        own = [each for each in placed if each.group == group]
        assert len(own) == group.count
        assert len({each.size for each in own}) == 1


@given(any_scenes())
def test_drawings_stay_apart_and_in_the_picture(scene: Scene) -> None:
    """No two drawings share a pixel and none is cut off."""
    placed = list(place_drawings(scene))

    for each in placed:
        assert 0 <= each.x <= SCENE_SIZE - each.size
        assert 0 <= each.y <= SCENE_SIZE - each.size
    for a, b in combinations(placed, 2):
        assert (
            a.x + a.size <= b.x or b.x + b.size <= a.x or a.y + a.size <= b.y or b.y + b.size <= a.y
        )


@given(any_scenes())
def test_drawings_stay_in_the_area_that_captions_name(scene: Scene) -> None:
    """A group said to be at the top left lies wholly in that quarter, and so on."""
    area_of = dict(zip(scene.groups, scene.layout.value, strict=True))

    for each in place_drawings(scene):
        assert set(area_of[each.group].split()) <= _sides(each) | {"all"}


def test_a_drawing_is_drawn_where_it_was_placed() -> None:
    """Outside the placed squares the picture is white, inside each of them something is drawn."""
    scene = made_scene(Layout.TWO_ABOVE_ONE, (2, "dog"), (1, "umbrella"), (3, "cat"))
    pixels = np.asarray(draw_scene(scene)).copy()

    for each in place_drawings(scene):
        square = pixels[each.y : each.y + each.size, each.x : each.x + each.size]
        assert (square < 200).any()
        square[:] = 255

    assert (pixels == 255).all()


def _sides(placed: PlacedDrawing) -> set[str]:
    sides = set()
    if placed.x + placed.size <= HALF:
        sides.add("left")
    if placed.x >= HALF:
        sides.add("right")
    if placed.y + placed.size <= HALF:
        sides.add("top")
    if placed.y >= HALF:
        sides.add("bottom")
    return sides
