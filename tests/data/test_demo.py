import numpy as np
import pytest

from rankformer.data import DataSource
from rankformer.data.demo import GENRES, demo_log, demo_oracle_scores, demo_parts

FINGERPRINT = "4fceb6dd0282c0a1ced1cabe60f8954c9a4bb4f78355fff26b02043ff51632e4"


def ndcg_at_20(scores, train, test):
    scores = scores.copy()
    scores[train.users, train.items] = -1
    relevant = np.zeros(scores.shape)
    relevant[test.users, test.items] = 1
    top = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    discount = 1 / np.log2(np.arange(20) + 2)
    gain = (np.take_along_axis(relevant, top, axis=1) * discount).sum(1)
    count = relevant.sum(1).astype(int)
    ideal = np.concatenate(([0], np.cumsum(discount)))[np.minimum(count, 20)]
    return (gain[count > 0] / ideal[count > 0]).mean()


def test_is_the_same_on_every_machine():
    assert demo_parts().fingerprint == FINGERPRINT
    assert demo_parts(seed=8).fingerprint != FINGERPRINT
    assert DataSource(source="demo").load().fingerprint == FINGERPRINT


def test_sizes_and_readable_names():
    log, parts = demo_log(), demo_parts()
    assert (log.num_users, log.num_items) == (900, 400)
    assert 20 <= len(log) / 900 <= 25
    assert [len(part) for part in parts] == pytest.approx([0.7 * len(log), 0.1 * len(log), 0.2 * len(log)], abs=1)
    assert len(log.drop_duplicates()) == len(log)
    assert len(np.unique(parts.train.users)) == 900
    assert len(np.unique(parts.train.items)) == 400
    titles = log.item_titles.to_pylist()
    assert len(set(titles)) == 400
    assert {title.rpartition(" (")[2].rstrip(")") for title in titles} == set(GENRES)
    assert log.user_ids.ids[0].as_py() == "mira-001"


def test_probabilities_are_the_ones_drawn_from():
    log, p = demo_log(), demo_oracle_scores()
    drawn = np.zeros(p.shape)
    drawn[log.users, log.items] = 1
    assert ((p > 0) & (p <= 0.95)).all()
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1)):
        band = (p >= low) & (p < high)
        error = (drawn[band] - p[band]).sum() / np.sqrt((p[band] * (1 - p[band])).sum())
        assert abs(error) < 4  # in standard deviations


def test_titles_tell_the_taste():
    log, p = demo_log(), demo_oracle_scores()
    genres = np.array([title.rpartition("(")[2] for title in log.item_titles.to_pylist()])
    by_genre = np.stack([p[:, genres == genre].sum(1) for genre in np.unique(genres)], axis=1)
    best_three = np.sort(by_genre, axis=1)[:, -3:].sum(1)
    assert (best_three > 0.9 * by_genre.sum(1)).all()


def test_there_is_much_to_learn_beyond_popularity():
    train, _valid, test = demo_parts()
    popularity = np.tile(np.bincount(train.items, minlength=400), (900, 1))
    assert 0.08 < ndcg_at_20(popularity, train, test) < 0.16
    assert 0.5 < ndcg_at_20(demo_oracle_scores(), train, test) < 0.65


def test_scores_can_be_changed_without_harm():
    demo_oracle_scores()[:] = 0
    assert demo_oracle_scores().max() == 0.95
