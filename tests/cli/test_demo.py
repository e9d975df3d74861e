"""What the demo asks."""

from tandem.cli.serve.demo import demo_items, demo_queries
from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.gallery import make_gallery


def test_the_demo_searches_in_four_languages_and_with_pictures() -> None:
    gallery = make_gallery(scene_records("test", seed=2, count=400), LANGUAGES)
    ingested = {item_id for item_id, _ in demo_items(gallery)}

    *texts, pictures = demo_queries(gallery)

    assert [queries[0].note for queries in texts] == [
        *("English", "German", "French", "Czech", "English")
    ]
    asked = [query for queries in (*texts, pictures) for query in queries]
    assert {query.answer_id for query in asked} <= ingested
    families = [query.answer_id.rpartition("-")[0] for queries in texts for query in queries]
    assert len(set(families)) == len(families) > 5
    assert all(isinstance(query.query, bytes) and "-en-" in query.answer_id for query in pictures)
