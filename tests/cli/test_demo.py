"""What the demo asks."""

import pytest

from tandem.cli.demo import demo_items, demo_queries
from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import scene_records
from tandem.evaluation.gallery import make_gallery


def test_the_demo_searches_in_four_languages_and_with_a_picture() -> None:
    """Five captions and one picture, each of a family of its own, each with its answer ingested."""
    gallery = make_gallery(scene_records("test", seed=2, count=120), LANGUAGES)
    ingested = {item_id for item_id, _ in demo_items(gallery)}

    *texts, picture = demo_queries(gallery)

    assert [query.note for query in texts] == ["English", "German", "French", "Czech", "English"]
    assert {query.answer_id for query in (*texts, picture)} <= ingested
    families = {query.answer_id.rpartition("-")[0] for query in texts}
    assert len(families) == 5
    assert isinstance(picture.query, bytes)
    assert "-en-" in picture.answer_id


def test_too_few_scenes_are_refused_by_name() -> None:
    """Rather than asking what was not ingested."""
    gallery = make_gallery(scene_records("test", seed=2, count=4), LANGUAGES)

    with pytest.raises(ValueError, match="too few scenes"):
        list(demo_queries(gallery))
