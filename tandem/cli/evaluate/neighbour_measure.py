"""Adds orders by neighbours to the measurement of a checkpoint. It imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.cli.corpora.corpora import corpus_place
from tandem.cli.neighbours.neighbour_gallery import CorpusPart
from tandem.lab.evaluation.gallery import Gallery
from tandem.lab.evaluation.offline_report import Reorder
from tandem.lab.neighbours.baselines.label_free import EXPANSIONS, METHODS, Setting, tuned
from tandem.lab.neighbours.leaprr.served_networks import networks_fingerprint
from tandem.lab.neighbours.leaprr.training_folder import LeaprrFolder
from tandem.lab.neighbours.lists.corpus_neighbours import (
    BE_BASE,
    CorpusNeighbours,
    NeighbourSource,
    base_name,
)
from tandem.lab.neighbours.lists.neighbour_file import load_neighbours
from tandem.lab.neighbours.neighbour_orders import LabelFreeMethod, LeaprrMethod, NeighbourOrders


@dataclass(frozen=True, slots=True)
class NeighbourMeasure:
    """Holds the methods that reorder each gallery."""

    methods: Sequence[LeaprrMethod | LabelFreeMethod]
    pool_sizes: Sequence[int]
    fingerprint: str
    about: dict[str, str]
    """The methods and their settings, for the report."""

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        dev: Path | None,
        fingerprint: str,
        pool_sizes: Sequence[int],
        asks_of: CorpusPart,
        *,
        allows_trained: bool = False,
    ) -> "NeighbourMeasure":
        """Reads networks of folders, and chooses settings of methods without labels on dev.

        Raises ValueError for networks or dev lists of another model, or of a base that is not
        measured; for those of the part that asks, unless `allows_trained`; and FileInvalid.
        """
        known = [BE_BASE, *(base_name(size) for size in pool_sizes if size)]
        near_dev = None if dev is None else load_neighbours(dev)
        if near_dev is not None:
            _check_model(str(dev), near_dev.source.model_fingerprint, fingerprint)
            if not allows_trained:
                _check_apart(str(dev), near_dev.source, asks_of)
        methods: list[LeaprrMethod | LabelFreeMethod] = []
        about = {}
        requested = list(dict.fromkeys(names))
        folders = [Path(name) for name in requested if name not in METHODS]
        for name in requested:
            if name not in METHODS:
                part = None if allows_trained else asks_of
                method = _learned(Path(name), _title(Path(name), folders), fingerprint, known, part)
                methods.append(method)
                networks = networks_fingerprint(method.model, fingerprint)[:12]
                about[method.name] = f"{name}, learned over {method.base}, networks {networks}"
                continue
            if near_dev is None:
                raise ValueError(
                    f"the settings of {name} are chosen on dev: give its lists, by tandem "
                    "neighbours build, with --neighbours-dev"
                )
            settings = _tuned(name, near_dev, known)
            methods.append(LabelFreeMethod(name, settings))
            about[name] = "; ".join(f"{base}: {each.text}" for base, each in settings.items())
            about["dev"] = f"{dev}, corpus {near_dev.source.corpus_sha256[:16]}"
        return cls(methods, [size for size in pool_sizes if size], fingerprint, about)

    def reorder(self, gallery: Gallery) -> Reorder:
        """Returns what gives a gallery's orders.

        Raises ValueError for a gallery of fewer items than a chosen setting or a network compares.
        """
        for method in self.methods:
            method.check_fits(len(gallery.records), len(gallery.pairs))
        source = NeighbourSource(self.fingerprint, "", "", 0, "")
        return NeighbourOrders(gallery, source, self.pool_sizes, self.methods)


def _tuned(name: str, dev: CorpusNeighbours, known: Sequence[str]) -> dict[str, Setting]:
    """Returns the settings for BE, and for the base of dev if that is measured too."""
    settings = {BE_BASE: tuned(name, dev.without_pools())}
    if dev.base in known and dev.pool_size and name not in EXPANSIONS:
        settings[dev.base] = tuned(name, dev)
    return settings


def _title(folder: Path, folders: Sequence[Path]) -> str:
    """Returns the folder's name, or its path where another's name is the same."""
    is_alone = [each.resolve().name for each in folders].count(folder.resolve().name) == 1
    return folder.resolve().name if is_alone else str(folder)


def _learned(
    folder: Path, title: str, fingerprint: str, known: Sequence[str], asks_of: CorpusPart | None
) -> LeaprrMethod:
    if not folder.is_dir():
        raise ValueError(
            f"no method {str(folder)!r}, and no such folder of networks; methods without labels "
            f"are {', '.join(METHODS)}"
        )
    model, training = LeaprrFolder(folder).read()
    lists = training.plan.train
    _check_model(str(folder), lists.model_fingerprint, fingerprint)
    if lists.base not in known:
        raise ValueError(
            f"{folder} learned over {lists.base}, and measured are {', '.join(known)}: give the "
            "--rerank-k of its lists"
        )
    if asks_of is not None:
        _check_apart(f"{folder}, which learned from them,", lists, asks_of)
        _check_apart(f"{folder}, whose epoch they chose,", training.plan.dev, asks_of)
    return LeaprrMethod(f"LeaPRR {title}", lists.base, model, lists.k)


def _check_model(name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise ValueError(
            f"{name} is of lists of the model {found[:12]}, and measured is {wanted[:12]}: build "
            "the lists, and train, with the measured checkpoint and precision"
        )


def _check_apart(name: str, lists: NeighbourSource, asks_of: CorpusPart) -> None:
    """Raises ValueError for lists of the very part of the corpus that asks."""
    places = [corpus_place(each.corpus) for each in (lists, asks_of)]
    is_one_seed = lists.seed == asks_of.seed or asks_of.corpus != "scenes"
    if places[0] == places[1] and lists.split == asks_of.split and is_one_seed:
        raise ValueError(
            f"{name} has lists of {lists.corpus}, split {lists.split}, which is measured: what is "
            "fitted to the queries themselves says nothing about others; build lists of another "
            "--split, or of scenes another --seed, or give --allow-trained"
        )
