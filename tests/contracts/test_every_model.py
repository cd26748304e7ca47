"""What every registered method must do, on a checkerboard whose answer is known.

Even users like even items, odd users odd ones. Each user has touched all items of its parity but one: the unseen items
are that one and all of the other parity, so a method with personalized lists puts it first. What a class says of
itself (personalized, deterministic, has_vectors) decides which form of a rule it is held to.
"""

import inspect
import re
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.errors import ConfigError, NotSupportedError
from rankformer.evaluation.evaluator import evaluate
from rankformer.losses import RANKING_LOSSES
from rankformer.models.registry import MODELS, load_model, model_class
from rankformer.models.trained import TrainedModel

pytestmark = pytest.mark.usefixtures("one_thread")

USERS, ITEMS = 24, 20
USER_IDS = IdMap(pa.array([f"user {number}" for number in range(USERS)]))
ITEM_IDS = IdMap(pa.array([100 + number for number in range(ITEMS)]))
HELD_OUT = [2 * (user // 2 % (ITEMS // 2)) + user % 2 for user in range(USERS)]
# Where a method has such a setting, this is enough for the checkerboard.
SMALL = {"embedding_dim": 8, "epochs": 40, "validate_every": 10, "num_layers": 2, "learning_rate": 0.05}
# What a method needs besides: with gamma 1 so few nodes spread over the whole sphere, and at that rate NodeFormer makes
# all nodes alike before it learns anything, and DIFFormer's encoder of dimension 64 has not settled by the last epoch.
BESIDES = {
    "difformer": {"learning_rate": 0.01},
    "mgformer": {"gamma": 0.2},
    "nodeformer": {"learning_rate": 0.003, "embedding_dim": 64},
}


def log_of(pairs, name):
    users, items = np.array(pairs, dtype=np.int32).T
    return Interactions(users, items, USER_IDS, ITEM_IDS, name=name)


LIKED = [(user, item) for user in range(USERS) for item in range(user % 2, ITEMS, 2) if item != HELD_OUT[user]]
TRAIN = log_of(LIKED, "checkerboard/train")
TEST = log_of(list(enumerate(HELD_OUT)), "checkerboard/test")


def make(name, seed=0, **settings):
    kind = MODELS[name]
    small = {setting: value for setting, value in SMALL.items() if setting in kind.settings_class.model_fields}
    return kind(seed=seed, **{**small, **BESIDES.get(name, {}), **settings})


def scores_of(model):
    """What the model holds, whatever it is made of: all scores of all users."""
    return model.recommender.scorer.scores(torch.arange(USERS))


def timeless(log):
    return [{key: value for key, value in event.items() if key != "seconds"} for event in log]


@pytest.fixture(params=MODELS, scope="module")
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name):
    return make(name).fit(TRAIN)


def test_the_registry_names_each_method_as_the_method_does(name):
    assert MODELS[name].name == name
    assert model_class(name) is MODELS[name]
    assert MODELS[name].paper


def test_fit_returns_the_model_itself(name):
    model = make(name)
    assert model.fit(TRAIN) is model


def test_a_personalized_method_puts_the_held_out_item_first_and_any_other_the_same_for_all(name, fitted):
    first = fitted.recommend(k=1).table
    assert first["user_id"].to_pylist() == USER_IDS.ids.to_pylist()
    if MODELS[name].personalized:
        assert first["item_id"].to_pylist() == [100 + item for item in HELD_OUT]
    else:
        assert len(set(fitted.recommend(k=1, include_seen=True).table["item_id"].to_pylist())) == 1


def test_lists_hold_every_unseen_item_and_no_seen_one(fitted):
    table = fitted.recommend(k=ITEMS).table
    seen = {(f"user {user}", 100 + item) for user, item in LIKED}
    returned = list(zip(table["user_id"].to_pylist(), table["item_id"].to_pylist(), strict=True))
    assert len(returned) == len(set(returned)) == USERS * ITEMS - len(LIKED)
    assert not seen & set(returned)


def test_scores_fall_along_each_list(fitted):
    table = fitted.recommend(["user 3"], k=ITEMS).table
    scores = table["score"].to_pylist()
    assert scores == sorted(scores, reverse=True)
    assert table["rank"].to_pylist() == list(range(1, len(scores) + 1))


def test_similar_items_leave_the_item_itself_out(fitted):
    similar = fitted.similar_items(103, k=5).table["similar_item_id"].to_pylist()
    assert len(similar) == 5
    assert 103 not in similar


def test_evaluation_agrees_with_the_lists(name, fitted):
    result = evaluate(fitted, TEST, metrics=["hit_rate@1", "ndcg@20", "recall@20"])
    assert result.metrics["recall@20"] == 1.0
    assert result.protocol.users == USERS
    assert 0 < result.metrics["ndcg@20"] <= 1
    assert not MODELS[name].personalized or result.metrics["hit_rate@1"] == 1.0


def test_save_and_load_give_the_same_model(name, fitted, tmp_path):
    fitted.save(tmp_path / "run")
    for again in (MODELS[name].load(tmp_path / "run"), load_model(tmp_path / "run")):
        assert type(again) is MODELS[name]
        assert again.settings == fitted.settings
        assert again.seed == fitted.seed
        assert again.log == fitted.log
        assert again.recommend(k=5).table.equals(fitted.recommend(k=5).table)
        assert again.parameters().keys() == fitted.parameters().keys()
        assert all(torch.equal(value, fitted.parameters()[key]) for key, value in again.parameters().items())
        again.save(tmp_path / "again")
        assert load_model(tmp_path / "again").recommend(k=5).table.equals(fitted.recommend(k=5).table)


def test_a_seed_decides_everything(name, fitted):
    torch.manual_seed(99)
    again = make(name).fit(TRAIN)
    assert torch.equal(scores_of(again), scores_of(fitted))
    other = scores_of(make(name, seed=1).fit(TRAIN))
    if MODELS[name].deterministic:
        torch.testing.assert_close(other, scores_of(fitted))
    else:
        assert not torch.equal(other, scores_of(fitted))


def test_fitting_leaves_torch_as_it_was(name):
    state = torch.get_rng_state()
    make(name).fit(TRAIN)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_scores_are_finite_float32_and_cut_from_the_graph(fitted):
    scores = scores_of(fitted)
    assert scores.shape == (USERS, ITEMS)
    assert scores.dtype == torch.float32
    assert bool(torch.isfinite(scores).all())
    assert not scores.requires_grad


def test_embeddings_are_finite_float32_cut_from_the_graph_and_of_the_right_size_or_there_are_none(name, fitted):
    if MODELS[name].has_vectors is None:  # depends on its members; of these, neighbourhood methods have none
        assert fitted.recommender.scorer.members
        return
    if not MODELS[name].has_vectors:
        with pytest.raises(NotSupportedError, match="scores without embeddings"):
            _ = fitted.embeddings
        return
    embeddings = fitted.embeddings
    assert (embeddings.num_users, embeddings.num_items) == (USERS, ITEMS)
    assert embeddings.is_finite()
    assert embeddings.users.dtype == embeddings.items.dtype == torch.float32
    assert not embeddings.users.requires_grad
    assert not embeddings.items.requires_grad


def test_fitting_again_forgets_the_first_time(name, fitted):
    model = make(name).fit(log_of([(0, 1), (1, 0)], "other"))
    model.fit(TRAIN)
    assert torch.equal(scores_of(model), scores_of(fitted))
    assert model.log == fitted.log or len(model.log) == len(fitted.log)


@pytest.mark.parametrize("valid", [TEST, log_of([(0, 0)], "empty").rows(np.array([], dtype=int))])
def test_a_validation_part_may_be_given_and_may_be_empty(name, valid):
    model = make(name).fit(TRAIN, valid=valid)
    assert model.recommend(["user 0"], k=1).table.num_rows == 1


def test_ids_without_an_interaction_get_finite_scores(name):
    model = make(name).fit(log_of([pair for pair in LIKED if pair[0] != 5 and pair[1] != 7], "gaps"))
    assert bool(torch.isfinite(scores_of(model)).all())
    assert model.recommend(["user 5"], k=ITEMS).table.num_rows == ITEMS


def test_duplicates_are_no_obstacle(name):
    model = make(name).fit(log_of(LIKED * 3, "duplicates"))
    assert bool(torch.isfinite(scores_of(model)).all())


def test_a_run_folder_takes_log_and_checkpoints_and_then_the_run(name, tmp_path):
    model = make(name).fit(TRAIN, valid=TEST, run_folder=tmp_path / "run")
    again = make(name).fit(TRAIN, valid=TEST, run_folder=tmp_path / "run", resume=True)
    assert torch.equal(scores_of(again), scores_of(model))
    # What is trained in epochs continues where it ended, and so to the same seconds; the rest is solved for again.
    trained = isinstance(model, TrainedModel)
    assert again.log == model.log if trained else timeless(again.log) == timeless(model.log)
    again.save(tmp_path / "run")
    assert load_model(tmp_path / "run").log == again.log


def test_use_before_fit_says_what_to_do(name, tmp_path):
    model = make(name)
    uses = {
        "recommend": lambda: model.recommend(["user 0"]),
        "similar_items": lambda: model.similar_items(100),
        "embeddings": lambda: model.embeddings,
        "save": lambda: model.save(tmp_path / "run"),
        "evaluate": lambda: evaluate(model, TEST),
    }
    for use in uses.values():
        with pytest.raises(ConfigError, match=r"is not fitted; call fit\(train\) or load\(folder\) first"):
            use()
    assert not (tmp_path / "run").exists()


def test_an_unknown_setting_is_refused_with_a_hint(name):
    for setting in MODELS[name].settings_class.model_fields:
        with pytest.raises(ConfigError, match=f"unknown setting '{setting}_'; did you mean '{setting}'"):
            MODELS[name](**{f"{setting}_": 1})


def test_an_unknown_device_is_refused(name):
    with pytest.raises(ConfigError, match="device='quantum' is not a device; use auto, cpu or cuda"):
        MODELS[name](device="quantum")


def test_the_repr_is_one_line_with_what_was_changed(name, fitted):
    text = repr(fitted)
    assert text.startswith(f"{MODELS[name].__name__}(")
    assert "\n" not in text
    assert len(text) < 200
    assert "seed=0" in text
    changed = fitted.settings.model_dump(exclude_defaults=True)
    assert all(f"{setting}={value!r}" in text for setting, value in changed.items())
    assert "not fitted" not in text
    assert "not fitted" in repr(make(name))


def test_every_setting_says_what_it_is(name):
    settings = MODELS[name].settings_class
    assert settings.__doc__
    for setting, field in settings.model_fields.items():
        assert field.description, f"{name}: {setting} has no sentence under it"
        assert field.description.endswith("."), f"{name}: {setting}"
        assert not field.is_required(), f"{name}: {setting} has no default"


def test_the_class_says_what_it_is_and_when_to_use_it(name):
    what, when = inspect.getdoc(MODELS[name]).split("\n\n")
    assert what.endswith(".")
    assert when.startswith("Use it ")


def test_the_module_states_its_equation(name):
    text = sys.modules[MODELS[name].__module__].__doc__
    assert re.search(r"y_ui = ", text), f"{name}: the docstring does not say what the score is"


def test_an_unknown_method_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match="unknown model 'rankfromer'; did you mean 'rankformer'"):
        model_class("rankfromer")
    with pytest.raises(ConfigError, match="known models are blend, rankformer"):
        model_class("zzz")


def test_a_new_user_gets_a_list_or_a_clear_error(name, fitted):
    history = [100 + item for user, item in LIKED if user == 3]
    if not fitted.recommender.can_fold_in:
        with pytest.raises(NotSupportedError, match="cannot score new users"):
            fitted.recommend(histories={"new": history})
        return
    new = fitted.recommend(histories={"new": history}, k=1).to_dicts()
    expected = HELD_OUT[3] if MODELS[name].personalized else None
    assert expected is None or new[0]["item_id"] == 100 + expected
    assert not set(history) & {row["item_id"] for row in new}


def test_a_score_is_the_sum_of_its_contributions_or_a_clear_error(fitted):
    if not fitted.recommender.can_explain:
        with pytest.raises(NotSupportedError, match="cannot be explained"):
            fitted.explain("user 3", 103)
        return
    found = fitted.explain("user 3", 103)
    total = sum(reason.contribution for reason in found.reasons) + found.user_contribution + found.global_contribution
    assert total == pytest.approx(found.score, abs=1e-5)


@pytest.mark.parametrize("loss", [loss for loss in RANKING_LOSSES if loss != "bpr"])
@pytest.mark.parametrize(
    "ranking_model", ["mf", "mf-softmax", "lightgcn", "rankformer", "rankformer-cl", "xsimgcl", "topkgat"]
)
def test_every_loss_of_a_ranking_model_puts_the_held_out_item_first(ranking_model, loss, tmp_path):
    model = make(ranking_model, loss=loss, loss_temperature=0.3).fit(TRAIN)
    first = model.recommend(k=1).table["item_id"].to_pylist()
    assert first == [100 + item for item in HELD_OUT]
    model.save(tmp_path / "run")
    assert load_model(tmp_path / "run").recommend(k=5).table.equals(model.recommend(k=5).table)


@pytest.mark.parametrize("name", MODELS)
def test_a_refit_learns_from_everything_with_what_validation_chose(name):
    model = make(name, **({"epochs": 6, "validate_every": 2} if issubclass(MODELS[name], TrainedModel) else {}))
    model.fit(TRAIN, TEST)
    whole = Parts(TRAIN, TEST, TEST.rows([])).whole
    before = scores_of(model).clone()
    refitted = model.refitted(whole)
    assert type(refitted) is type(model)
    assert refitted.settings == model.settings
    assert len(refitted.recommender.history) == len(TRAIN) + len(TEST)
    assert torch.equal(scores_of(model), before), "the model itself stays as it is"
    expected = make(name, **model.settings.hyperparameters()).fit(whole, choices=model.choices())
    torch.testing.assert_close(scores_of(refitted), scores_of(expected), rtol=1e-4, atol=1e-5)
    if isinstance(model, TrainedModel):
        chosen = model.choices()["epochs"]
        assert [event["epoch"] for event in refitted.log] == list(range(1, chosen + 1))
    known = zip(USER_IDS.take(whole.users).to_pylist(), ITEM_IDS.take(whole.items).to_pylist(), strict=True)
    listed = {(row["user_id"], row["item_id"]) for row in refitted.recommend(k=3).to_dicts()}
    assert not listed & set(known)
