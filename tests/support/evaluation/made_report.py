"""A report of eight queries, and how much a plot of one shows."""

from tandem.lab.evaluation.reports.report import BE, Ranking, Report

TEXT, IMAGE = "text→image", "image→text"
CE = "BE + CE 20"


def report(ce_ranks: tuple[int | None, ...] = (1, 1, 1, 4)) -> Report:
    rankings = (
        Ranking(TEXT, BE, 0, (1, 2, 6, 4), 0.010),
        Ranking(TEXT, CE, 20, ce_ranks, 0.060),
        Ranking(IMAGE, BE, 0, (1, 1, 11, None), 0.012),
        Ranking(IMAGE, CE, 20, (1, 2, 1, None), 0.070),
    )
    languages = {TEXT: ["en", "en", "de", "de"], IMAGE: ["en", "en", "de", "de"]}
    seconds = {TEXT: {"match": 1.5, "pair_count": 80}, IMAGE: {"match": 2.0, "pair_count": 80}}
    about = {"title": "scenes test, gallery of 4", "corpus": "scenes"}
    return Report(about, languages, rankings, seconds)
