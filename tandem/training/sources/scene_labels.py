"""Labels each image token of a scene with the drawing whose centre lies under it.

The backbone learns these labels first. They stand in for the object detectors of OSCAR and UNITER,
whose region features the paper takes as given: tokens say what is where before any text is read.
"""

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.scenes.drawing import place_drawings
from tandem.corpus.scenes.nouns import nouns_of
from tandem.corpus.scenes.scene import Scene
from tandem.modeling.config import TOKEN_SIZE


def class_count() -> int:
    """Returns the number of classes: one for each noun of the training split, and 0 for none."""
    return len(nouns_of("train")) + 1


def token_classes(scene: Scene, image_size: int) -> NDArray[np.int64]:
    """Returns int64 [R]: for each token the class of the drawing centred there, or 0."""
    number_of = {noun.codepoints: n for n, noun in enumerate(nouns_of("train"), start=1)}
    side = image_size // TOKEN_SIZE
    classes = np.zeros((side, side), dtype=np.int64)
    for placed in place_drawings(scene):
        row = int(placed.y + placed.size / 2) // TOKEN_SIZE
        column = int(placed.x + placed.size / 2) // TOKEN_SIZE
        classes[row, column] = number_of[placed.group.noun.codepoints]
    return classes.reshape(-1)
