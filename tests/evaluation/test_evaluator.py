"""The evaluator: who counts, what is masked, and what the protocol says."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError
from rankformer.evaluation.evaluator import evaluate
from rankformer.evaluation.metrics import OVER_LISTS, PER_USER
from rankformer.evaluation.validator import make_validator
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender


def log(pairs, num_users=3, num_items=5, **columns):
    users, items = zip(*pairs, strict=True) if pairs else ((), ())
    return Interactions.from_indices(users, items, num_users, num_items, **columns)


def descending(train):
    """A recommender for which item 0 is best for everybody, then 1, and so on."""
    scores = -torch.arange(float(train.num_items))[:, None]
    return Recommender(Embeddings(torch.ones(train.num_users, 1), scores), train.user_ids, train.item_ids, train)


def test_train_items_are_masked_and_only_users_with_test_interactions_count():
    train = log([(0, 0), (1, 2)])
    # User 0: list 1 2, test 1 -> recall 1. User 2: list 0 1, test 0 and 4 -> recall 1/2. User 1 has none.
    result = evaluate(descending(train), log([(0, 1), (2, 0), (2, 4)]), metrics=["recall@2", "mrr@2"])
    assert result.users.tolist() == [0, 2]
    assert result.per_user["recall@2"].tolist() == [1.0, 0.5]
    assert result.metrics == {"recall@2": 0.75, "mrr@2": 1.0}
    assert (result.protocol.users, result.protocol.test_interactions) == (2, 3)


def test_columns_of_a_table_can_be_named():
    model, test = descending(log([(0, 0), (1, 2)])), pa.table({"visitor": [0, 2, 2], "product": [1, 0, 4]})
    with pytest.raises(DataError, match="no user column"):
        evaluate(model, test)
    found = evaluate(model, test, metrics=["recall@2"], user="visitor", item="product")
    assert found.metrics == {"recall@2": 0.75}


def test_mask_choices_change_the_lists_as_named():
    train, valid, test = log([(0, 0)]), log([(0, 1)]), log([(0, 2)])
    value = {
        mask: evaluate(descending(train), test, metrics="mrr@5", valid=valid, mask=mask).metrics["mrr@5"]
        for mask in ("none", "train", "train+valid")
    }
    assert value == {"none": pytest.approx(1 / 3), "train": 0.5, "train+valid": 1.0}


def test_duplicates_count_in_counts_but_not_in_distinct():
    names = ["recall@5", "recall_capped@5", "ndcg@5", "map@5"]
    result = evaluate(descending(log([])), log([(0, 0), (0, 0)]), metrics=names)
    # Ideal DCG over two interactions: 1 + 1/log2(3) = 1.63093; found 1.
    ndcg = pytest.approx(1 / (1 + 1 / np.log2(3)))
    assert result.metrics == {"recall@5": 1.0, "recall_capped@5": 0.5, "ndcg@5": ndcg, "map@5": 1.0}
    assert result.protocol.test_interactions == 2


def test_a_test_pair_that_is_also_in_train_is_masked_and_never_hit():
    result = evaluate(descending(log([(0, 0)])), log([(0, 0), (0, 1)]), metrics=["recall@5"])
    assert result.metrics == {"recall@5": 0.5}


def test_given_train_replaces_the_history_even_when_it_is_empty():
    recommender = descending(log([(0, 0)]))
    assert evaluate(recommender, log([(0, 0)]), metrics="mrr@5", train=log([])).metrics["mrr@5"] == 1.0
    both = {"mask": "train+valid", "valid": log([(0, 4)])}
    assert evaluate(recommender, log([(0, 0)]), metrics="mrr@5", train=log([]), **both).metrics["mrr@5"] == 1.0


def test_each_cutoff_is_judged_on_its_own_prefix_of_the_list():
    result = evaluate(descending(log([])), log([(0, 2), (0, 3)]), metrics=["recall@3", "recall@1", "recall@50"])
    assert result.metrics == {"recall@3": 0.5, "recall@1": 0.0, "recall@50": 1.0}
    assert result.protocol.k == (1, 3, 50)


def test_other_numbering_is_translated_by_raw_id_and_unknown_ids_are_counted():
    train = Interactions(
        np.array([0], np.int32), np.array([0], np.int32), IdMap(pa.array(["a", "b"])), IdMap(pa.array(["i", "j", "k"]))
    )
    # Order reversed, one stranger on each side. Interactions: b-k, b-new, stranger-j, a-j.
    test = Interactions(
        np.array([1, 1, 0, 2], np.int32),
        np.array([1, 0, 2, 2], np.int32),
        IdMap(pa.array(["stranger", "b", "a"])),
        IdMap(pa.array(["new", "k", "j", "i"])),
    )
    result = evaluate(descending(train), test, metrics=["recall@3", "mrr@3"])
    assert result.users.tolist() == [0, 1, -1]
    assert result.user_ids.to_pylist() == ["a", "b", "stranger"]
    # a: list j k, test j -> 1 at rank 1. b, without a training interaction, and the stranger get i j k, which are
    # popular: test k and the unknown item -> 1/2 at rank 3; test j -> 1 at rank 2.
    assert result.per_user["recall@3"].tolist() == [1.0, 0.5, 1.0]
    np.testing.assert_allclose(result.per_user["mrr@3"], [1.0, 1 / 3, 1 / 2])
    assert result.warm_metrics == {"recall@3": 1.0, "mrr@3": 1.0}
    protocol = result.protocol
    assert (protocol.users, protocol.users_unknown, protocol.users_cold) == (3, 1, 2)
    assert (protocol.test_interactions, protocol.test_interactions_unknown) == (4, 1)
    assert "3 users (2 cold)" in protocol.line()
    assert "1 users unknown, 1 test interactions unknown" in protocol.line()


def test_cold_users_count_the_same_whether_the_model_knows_their_id_or_not():
    """A split made in one piece knows the ids of its test users; a test file read later brings unknown ones."""
    everyone = log([(0, 4), (0, 3), (1, 4)], num_users=4)
    ids = [str(user) for user in range(4)]
    whole = Interactions(everyone.users, everyone.items, IdMap(pa.array(ids)), everyone.item_ids)
    trained_on = Interactions(everyone.users, everyone.items, IdMap(pa.array(ids[:2])), everyone.item_ids)
    test = log([(0, 0), (2, 4), (3, 3), (3, 1)], num_users=4)
    test = Interactions(test.users, test.items, whole.user_ids, test.item_ids)
    known, unknown = (evaluate(descending(train), test, metrics="mrr@5") for train in (whole, trained_on))
    # Users 2 and 3 get what is popular: 4 3 0 1 2.
    assert known.per_user["mrr@5"].tolist() == unknown.per_user["mrr@5"].tolist() == [1.0, 1.0, 0.5]
    assert known.metrics == unknown.metrics
    assert known.warm_metrics == unknown.warm_metrics == {"mrr@5": 1.0}
    assert (known.protocol.users_cold, unknown.protocol.users_cold) == (2, 2)
    assert (known.protocol.users_unknown, unknown.protocol.users_unknown) == (0, 2)


def test_a_test_part_that_the_lists_leave_out_altogether_is_rejected():
    recommender = descending(log([(0, 0), (1, 2)]))
    with pytest.raises(DataError, match="every interaction of interactions is left out"):
        evaluate(recommender, log([(1, 2)]))
    assert evaluate(recommender, log([(1, 2)]), metrics="mrr@5", mask="none").metrics == {"mrr@5": pytest.approx(1 / 3)}


def test_what_is_known_but_was_not_fitted_is_masked_only_when_asked_for():
    train, test = log([(0, 0)]), log([(0, 2)])
    recommender = replace(descending(train), known=log([(0, 0), (0, 1)]))
    assert evaluate(recommender, test, metrics="mrr@5").metrics == {"mrr@5": 0.5}
    assert evaluate(recommender, test, metrics="mrr@5", mask="known").metrics == {"mrr@5": 1.0}


def test_stored_lists_are_measured_in_place_of_the_models_own():
    train, test = log([(0, 0), (2, 1)]), log([(0, 2), (2, 3)])
    first = evaluate(descending(train), test, metrics="mrr@4,recall@2")
    again = evaluate(descending(log([(0, 2), (2, 3)])), test, train=train, metrics="mrr@4,recall@2", lists=first.lists)
    assert again.metrics == first.metrics
    with pytest.raises(DataError, match="stored lists have shape"):
        evaluate(descending(train), test, metrics="mrr@5", lists=first.lists)


def test_empty_or_foreign_test_parts_are_rejected():
    recommender = descending(log([(0, 0)]))
    with pytest.raises(DataError, match="has no interactions"):
        evaluate(recommender, log([]))
    ids = IdMap(pa.array(["x"]))
    with pytest.raises(DataError, match="not one user"):
        evaluate(recommender, Interactions(np.zeros(1, np.int32), np.zeros(1, np.int32), ids, ids))


def test_wrong_masks_and_metrics_are_rejected():
    recommender, test = descending(log([(0, 0)])), log([(0, 1)])
    with pytest.raises(ConfigError, match=r"choose one of train, train\+valid, none"):
        evaluate(recommender, test, mask="all")
    with pytest.raises(ConfigError, match="needs the validation part"):
        evaluate(recommender, test, mask="train+valid")
    with pytest.raises(ConfigError, match="unknown metric 'auc@5'"):
        evaluate(recommender, test, metrics=["auc@5"])


def test_a_fitted_model_is_judged_by_its_recommender():
    recommender, test = descending(log([(0, 0)])), log([(0, 1)])
    model = SimpleNamespace(recommender=recommender)
    assert evaluate(model, test).metrics == evaluate(recommender, test).metrics


def test_every_known_metric_runs_and_only_user_metrics_are_kept_per_user():
    names = [f"{name}@3" for name in [*PER_USER, *OVER_LISTS]]
    result = evaluate(descending(log([(0, 0)])), log([(0, 1), (1, 2)]), metrics=names)
    assert list(result.metrics) == names
    assert set(result.per_user) == {f"{name}@3" for name in PER_USER}
    for name, values in result.per_user.items():
        assert result.metrics[name] == pytest.approx(values.mean())


def test_protocol_is_one_line_and_json_ready():
    test = log([(0, 1)], name="toy/test")
    result = evaluate(descending(log([(0, 0)])), test, seed=7)
    line = result.protocol.line()
    assert "\n" not in line
    for part in (
        "toy/test",
        "k=20",
        "mask=train",
        "1 users",
        "1 test interactions",
        "seed=7",
        "ties by item index",
        "cpu",
    ):
        assert part in line
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict()
    assert set(result.protocol.versions) == {"rankformer", "torch", "python"}
    assert evaluate(descending(log([(0, 0)])), test, split_name="other").protocol.split == "other"
    assert str(result).splitlines()[1] == f"[{line}]"


def test_split_hash_ignores_row_order_and_sees_every_changed_interaction():
    def hash_of(train_pairs, test_pairs):
        return evaluate(descending(log(train_pairs)), log(test_pairs)).protocol.split_hash

    base = hash_of([(0, 0), (1, 2)], [(0, 1), (2, 3)])
    assert hash_of([(1, 2), (0, 0), (0, 0)], [(2, 3), (0, 1)]) == base
    assert hash_of([(0, 0)], [(0, 1), (2, 3)]) != base
    assert hash_of([(0, 0), (1, 2)], [(0, 1), (2, 4)]) != base
    assert hash_of([(0, 0), (1, 2)], [(0, 1), (0, 1), (2, 3)]) != base


def random_parts(seed):
    rng = np.random.default_rng(seed)
    make = lambda size: Interactions.from_indices(rng.integers(0, 30, size), rng.integers(0, 80, size), 30, 80)  # noqa: E731
    return make(300), make(60), Embeddings(torch.randn(30, 6), torch.randn(80, 6))


def test_validator_gives_what_evaluate_gives_and_can_be_called_again():
    train, valid, embeddings = random_parts(1)
    names = ["ndcg@20", "recall@5"]
    expected = evaluate(Recommender(embeddings, train.user_ids, train.item_ids, train), valid, metrics=names).metrics
    validate = make_validator(train, valid, names)
    assert validate(embeddings) == expected
    assert validate(embeddings) == expected
    assert list(make_validator(train, valid)(embeddings)) == ["ndcg@20"]


def test_validator_looks_at_a_sample_of_users_that_is_always_the_same():
    train, valid, embeddings = random_parts(1)
    [value] = make_validator(train, valid, most_users=5)(embeddings).values()
    assert make_validator(train, valid, most_users=5)(embeddings) == {"ndcg@20": value}
    fitted = Recommender(embeddings, train.user_ids, train.item_ids, train)
    users = np.unique(valid.users)
    chosen = np.isin(users, np.random.default_rng(0).choice(users, 5, replace=False))
    assert value == pytest.approx(evaluate(fitted, valid, metrics="ndcg@20").per_user["ndcg@20"][chosen].mean())
    assert make_validator(train, valid, most_users=30)(embeddings) == make_validator(train, valid)(embeddings)


def test_validator_takes_embeddings_that_still_ask_for_gradients():
    train, valid, embeddings = random_parts(2)
    learning = Embeddings(embeddings.users.requires_grad_(), embeddings.items.requires_grad_())
    assert 0 <= make_validator(train, valid)(learning)["ndcg@20"] <= 1


def test_slow_loop_over_users_agrees_with_the_vectorised_evaluator():
    train, test, embeddings = random_parts(3)
    result = evaluate(
        Recommender(embeddings, train.user_ids, train.item_ids, train), test, metrics=["ndcg@10", "recall@10"]
    )
    scores = embeddings.users @ embeddings.items.T
    for row, user in enumerate(result.users.tolist()):
        seen = set(train.items[train.users == user].tolist())
        wanted = test.items[test.users == user].tolist()
        ranked = [item for item in scores[user].argsort(descending=True).tolist() if item not in seen][:10]
        gain = sum(1 / np.log2(rank + 2) for rank, item in enumerate(ranked) if item in wanted)
        ideal = sum(1 / np.log2(rank + 2) for rank in range(min(10, len(wanted))))
        assert result.per_user["ndcg@10"][row] == pytest.approx(gain / ideal)
        assert result.per_user["recall@10"][row] == pytest.approx(len(set(ranked) & set(wanted)) / len(set(wanted)))
