"""A metric is a value: it prints, parses, compares and hashes as itself."""

import pytest

import calibrank as cr
from calibrank.metrics import NDCG, Discrimination, FieldECE, FieldRCE, Metric, Miscalibration
from calibrank.registry import METRICS, parse_metric
from tests import members

MORE = (
    cr.ECE(bins=20) @ 5,
    NDCG(),
    NDCG(7) @ 3,
    cr.LogLoss(clip=0.0),
    Miscalibration(score=cr.LogLoss(clip=1e-3)),
    FieldECE("country"),
    FieldRCE('a "quoted" name', "zażółć") @ 2,
)


@pytest.mark.parametrize("metric", [*METRICS.values(), *members.METRICS, *MORE], ids=str)
def test_the_text_of_a_metric_parses_back(metric: Metric) -> None:
    again = parse_metric(str(metric))
    assert again == metric
    assert hash(again) == hash(metric)
    assert (str(again), repr(again), again.name) == (str(metric), repr(metric), str(metric))


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("ECE", cr.ECE()),
        (" ECE(20) @ 5 ", cr.ECE(bins=20) @ 5),
        ("NDCG@5", NDCG(5)),
        ("NDCG() @ 5", NDCG(5)),
        ("Discrimination(score=LogLoss)", Discrimination(score=cr.LogLoss())),
    ],
)
def test_texts_that_people_write(text: str, metric: Metric) -> None:
    assert parse_metric(text) == metric


def test_settings_are_part_of_the_name_unless_they_are_the_default() -> None:
    names = [str(metric) for metric in (cr.ECE(), cr.ECE(bins=15), cr.ECE(bins=7), cr.ECE() @ 3)]
    assert names == ["ECE", "ECE", "ECE(bins=7)", "ECE@3"]
    assert cr.ECE() != cr.ECE(bins=7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a metric must be made of LogLoss,"),
        ("Accuracy", "got 'Accuracy'"),
        ("ECE(", "a metric must be made of"),
        ("ECE(bin=20)", r"got 'ECE\(bin=20\)'"),
        ("ECE(bins=0)", "bins must be a whole number"),
        ("ECE@0", "n must be a whole number, 1 or more, got 0"),
        ("FieldECE", "fields must be names of columns, got none"),
        ("FieldECE(3)", "fields must be names of columns, got 3"),
        ("5", "a metric must be of LogLoss"),
        ("__import__('os')", "a metric must be made of"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        parse_metric(text)
