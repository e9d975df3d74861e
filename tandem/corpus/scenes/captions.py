"""Writes a scene's captions; each names every drawing, its count and its position."""

from tandem.corpus.scenes.nouns import Language
from tandem.corpus.scenes.scene import Scene

# Adverbs before a nominative, so that nothing needs inflection.
_PLACES: dict[Language, dict[str, str]] = {
    "en": {
        "left": "on the left",
        "right": "on the right",
        "top": "at the top",
        "bottom": "at the bottom",
        "top left": "at the top left",
        "top right": "at the top right",
        "bottom left": "at the bottom left",
        "bottom right": "at the bottom right",
    },
    "de": {
        "left": "links",
        "right": "rechts",
        "top": "oben",
        "bottom": "unten",
        "top left": "oben links",
        "top right": "oben rechts",
        "bottom left": "unten links",
        "bottom right": "unten rechts",
    },
    "fr": {
        "left": "à gauche",
        "right": "à droite",
        "top": "en haut",
        "bottom": "en bas",
        "top left": "en haut à gauche",
        "top right": "en haut à droite",
        "bottom left": "en bas à gauche",
        "bottom right": "en bas à droite",
    },
    "cs": {
        "left": "vlevo",
        "right": "vpravo",
        "top": "nahoře",
        "bottom": "dole",
        "top left": "vlevo nahoře",
        "top right": "vpravo nahoře",
        "bottom left": "vlevo dole",
        "bottom right": "vpravo dole",
    },
}
_PRESENTING: dict[Language, tuple[str, str]] = {  # before one, before several
    "en": ("there is", "there are"),
    "de": ("das ist", "das sind"),
    "fr": ("c’est", "ce sont"),
    "cs": ("je tu", "jsou tu"),
}


def captions_of(scene: Scene, language: Language) -> tuple[str, ...]:
    """Returns the scene's sentences in one language: three in English, two in each other."""
    listed = _listed(scene, language)
    return (*_related(scene), listed[0]) if language == "en" else listed


def _listed(scene: Scene, language: Language) -> tuple[str, str]:
    groups = [group.noun.counted(group.count, language) for group in scene.groups]
    if len(groups) == 1:
        presenting = _PRESENTING[language][scene.groups[0].count > 1]
        return f"{presenting} {groups[0]}", groups[0]
    places = _PLACES[language]
    parts = [
        f"{places[area]} {group}" for area, group in zip(scene.layout.value, groups, strict=True)
    ]
    return ", ".join(parts), ", ".join(reversed(parts))


def _related(scene: Scene) -> tuple[str, str]:
    """Returns English with prepositions: "two dogs left of one umbrella, with three cats below"."""
    first, *others = (group.noun.counted(group.count, "en") for group in scene.groups)
    if not others:
        return first, f"a picture of {first}"
    second, *rest = others
    if scene.layout.value[0] == "top":
        return f"{first} above {second}", f"{second} below {first}"
    if not rest:
        return f"{first} left of {second}", f"{second} to the right of {first}"
    where = "below" if scene.layout.value[2] == "bottom" else "above"
    return (
        f"{first} left of {second}, with {rest[0]} {where}",
        f"{rest[0]} {where}, {second} to the right of {first}",
    )
