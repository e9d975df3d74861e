"""A fake of Tandem for callers' tests: a server in memory, in the caller's own process.

    from tandem.client import Client, Item
    from tandem.client.testing import FakeServer

    with FakeServer() as fake, Client(fake.address) as client:
        list(client.ingest([Item("cup-1", image=b"a red cup")], index_id="pets"))
        [found] = client.search("red cup", index_id="pets").items

It has no model. Words stand for meaning, so scores are the same in every run and say nothing about
what Tandem would find.
"""

from tandem.client.testing.fake_server import FakeServer

__all__ = ["FakeServer"]
