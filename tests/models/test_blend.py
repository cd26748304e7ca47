"""The blend as a model: its members, what they are given, what is chosen and what is told of it."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, NotSupportedError, TrainingError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.blend import Blend
from rankformer.models.blend_fit import BlendFit
from rankformer.models.registry import load_model, model_class
from rankformer.runs.training_log import blend_report

pytestmark = pytest.mark.usefixtures("one_thread")

N, M = 40, 24
EVERYONE = torch.arange(N)
TINY = {"epochs": 6, "validate_every": 2, "embedding_dim": 4}
MEMBER_SETTINGS = {"ials": {"embedding_dim": 4, "regularization": 0.03}, "lightgcn": TINY, "mf": TINY}


def tastes(seed=5):
    """A log of 40 users and 24 items in two tastes with some noise."""
    random = np.random.default_rng(seed)
    users, items = np.divmod(np.arange(N * M), M)
    chosen = random.random(N * M) < np.where(users % 2 == items % 2, 0.5, 0.05)
    return Interactions.from_indices(users[chosen], items[chosen], N, M)


LOG = tastes()
PARTS = LOG.split(parts=(0.6, 0.2, 0.2))


def make(*members, **settings):
    members = members or ("ials", "item-knn", "mf")
    given = {name: MEMBER_SETTINGS[name] for name in members if name in MEMBER_SETTINGS}
    return Blend(members=members, **{"member_settings": given, **settings})


def events(model, kind):
    return [event for event in model.log if event["event"] == kind]


@pytest.fixture(scope="module")
def fitted():
    return make().fit(PARTS.train, PARTS.valid)


def scores_of(model):
    return model.recommender.scorer.scores(EVERYONE)


class TestAnswers:
    def test_lists_hold_nothing_that_a_user_has(self, fitted):
        table = fitted.recommend(k=5).table
        known = {
            (log.user_ids.ids[u].as_py(), i) for log in PARTS[:2] for u, i in zip(log.users, log.items, strict=True)
        }
        assert len(table) == N * 5
        assert not known & set(zip(table["user_id"].to_pylist(), table["item_id"].to_pylist(), strict=True))

    def test_the_reported_value_is_that_of_the_validation_part(self, fitted):
        report = blend_report(fitted.log)
        [validation] = events(fitted, "validation")
        assert validation["ndcg@20"] == pytest.approx(report["value"], abs=1e-5)
        assert validation["ndcg@20"] == evaluate(fitted, PARTS.valid, mask="train").metrics["ndcg@20"]

    def test_explanations_add_up_over_the_history_and_over_members(self, fitted):
        found = fitted.explain(3, 5)
        parts = [reason.contribution for reason in found.reasons]
        assert sum(parts) + found.user_contribution + found.global_contribution == pytest.approx(found.score)
        assert sum(found.members.values()) == pytest.approx(found.score)
        assert found.score == pytest.approx(float(scores_of(fitted)[3, 5]), abs=1e-3)
        assert found.to_dict()["members"] == found.members
        assert all(f"by {name}" in str(found) for name in found.members)

    def test_new_users_are_answered_without_the_members_that_cannot(self):
        model = make("item-knn", "mf", tune=False).fit(PARTS.train, PARTS.valid, choices=chosen("item-knn", "mf"))
        lists = model.recommend(histories={"new": [2, 4, 6]}, k=3)
        assert lists.left_out == ("mf",)
        assert "without mf" in lists._repr_html_()
        alone = model_class("item-knn")().fit(PARTS.train).recommend(histories={"new": [2, 4, 6]}, k=3)
        assert lists.table["item_id"].equals(alone.table["item_id"])
        assert alone.left_out == ()
        assert model.recommend([3]).left_out == ()

    def test_no_member_can_means_that_new_users_cannot_be_answered(self):
        model = make("mf", tune=False).fit(PARTS.train, PARTS.valid)
        with pytest.raises(NotSupportedError, match="cannot score new users"):
            model.recommend(histories={"new": [2]})

    def test_similar_items_share_a_taste(self, fitted):
        similar = fitted.similar_items(4, k=5).table["similar_item_id"].to_pylist()
        assert sum(item % 2 == 0 for item in similar) >= 4

    def test_save_and_load(self, fitted, tmp_path):
        fitted.save(tmp_path / "run")
        for again in (Blend.load(tmp_path / "run"), load_model(tmp_path / "run")):
            assert torch.equal(scores_of(again), scores_of(fitted))
            assert again.settings == fitted.settings
            assert again.explain(3, 5) == fitted.explain(3, 5)
            assert again.similar_items(4).table.equals(fitted.similar_items(4).table)
            history = {"new": [1, 3]}
            assert again.recommend(histories=history).table.equals(fitted.recommend(histories=history).table)
            assert blend_report(again.log) == blend_report(fitted.log)

    def test_vectors_where_all_members_have_some(self, fitted):
        model = make("ials", "mf", tune=False).fit(PARTS.train, PARTS.valid, choices=chosen("ials", "mf"))
        assert model.embeddings.users.shape == (N, 8)
        torch.testing.assert_close(model.embeddings.scores(EVERYONE), scores_of(model), atol=1e-5, rtol=1e-5)


def chosen(*members):
    """What a fit that weighs members equally would have chosen."""
    records = [
        {"label": name, "member": name, "weight": 1 / len(members), "settings": {}, "choices": {}} for name in members
    ]
    return {"members": records}


class TestChoices:
    def test_a_search_tries_the_defaults_first_and_reports_every_member(self, fitted):
        trials = events(fitted, "trial")
        for name in fitted.settings.members:
            first = next(trial for trial in trials if trial["member"] == name)
            assert first["settings"].keys() <= {"iterations"}  # as cheap as the search begins, or whole
        report = blend_report(fitted.log)
        weights = [member["weight"] for member in report["members"]]
        assert sum(weights) == pytest.approx(1)
        assert weights == sorted(weights, reverse=True)
        for member in report["members"]:
            name, settings = member["label"].removesuffix(" (defaults)"), member["settings"]
            values = [t["value"] for t in trials if (t["member"], t["settings"]) == (name, settings)]
            assert [member["alone"]] == pytest.approx(values, rel=1e-6)

    def test_what_is_given_is_not_searched(self, fitted):
        tried = [trial["settings"] for trial in events(fitted, "trial") if trial["member"] == "ials"]
        assert any("weight" in settings for settings in tried)
        assert not any("regularization" in settings for settings in tried)

    def test_without_tuning_each_member_is_fitted_once(self):
        model = make(tune=False).fit(PARTS.train, PARTS.valid)
        assert [(trial["member"], trial["settings"]) for trial in events(model, "trial")] == [
            ("ials", {}),
            ("item-knn", {}),
            ("mf", {}),
        ]

    def test_a_refit_chooses_nothing(self, fitted):
        again = fitted.refitted(LOG)
        assert {event["event"] for event in again.log} == {"fitting"}
        assert again.choices() == fitted.choices()
        assert len(events(again, "fitting")) == len(fitted.choices()["members"])
        assert again.recommender.history == LOG or len(again.recommender.history) == len(LOG)

    def test_choices_are_json_without_a_clock(self, fitted):
        choices = fitted.choices()
        assert json.loads(json.dumps(choices)) == choices
        assert "seconds" not in json.dumps(choices)

    def test_without_a_validation_part_a_tenth_is_held_out_to_choose_on(self):
        model = make("ials", "item-knn").fit(LOG)
        assert len(model.recommender.history) == len(LOG)
        assert blend_report(model.log) is not None
        lists = model.recommend(k=M).table
        assert len(lists) == N * M - len(LOG)

    def test_a_resumed_fit_without_a_validation_part_is_the_same(self, tmp_path):
        model = make("ials", "mf").fit(LOG, run_folder=tmp_path)
        again = make("ials", "mf").fit(LOG, run_folder=tmp_path, resume=True)
        assert torch.equal(scores_of(again), scores_of(model))

    def test_too_little_to_hold_out_gives_equal_weights(self):
        model = make("ials", "item-knn").fit(LOG.rows(np.arange(40)))
        assert [member["weight"] for member in model.choices()["members"]] == [0.5, 0.5]
        assert blend_report(model.log) is None


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"members": ""}, "unknown model"),
            ({"members": ()}, "name at least one method"),
            ({"members": "ials,ials"}, "each once"),
            ({"members": ["blend"]}, "not blend itself"),
            ({"members": "ials,itemknn"}, "item-knn"),
            ({"member_settings": {"mf": {}}}, "'mf' is none of the members ials, item-knn"),
            ({"member_settings": {"ials": {"weigth": 3}}}, "unknown setting 'weigth'"),
            ({"member_settings": {"ials": {"weight": -3}}}, "weight=-3"),
            (
                {"members": "mf", "member_settings": {"mf": {"metric": "recall@5"}}},
                "mf has another metric than the blend",
            ),
            ({"budget": "soon"}, "'soon' is not a duration"),
            ({"budget": 0}, "budget=0"),
        ],
    )
    def test_mistakes_are_found_before_the_work(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            Blend(**{"members": "ials,item-knn", **settings})

    def test_members_and_times_as_people_write_them(self):
        settings = Blend(members="ials, item-knn", budget="2m").settings
        assert settings.members == ("ials", "item-knn")
        assert settings.budget == 120
        assert Blend(budget=None).settings.budget is None

    def test_another_metric_chooses_in_every_member(self):
        model = make("mf", "ials", metric="recall@5").fit(PARTS.train, PARTS.valid)
        assert {trial["member"] for trial in events(model, "trial")} == {"mf", "ials"}
        assert "recall@5" in events(model, "validation")[0]

    def test_an_unknown_metric(self):
        with pytest.raises(ConfigError, match="unknown metric"):
            make(metric="ndgc@20").fit(PARTS.train, PARTS.valid)


class TestPopularity:
    def test_it_is_a_member_by_default_and_enters_with_roots_of_counts(self):
        blend = Blend()
        assert blend.settings.members[0] == "popularity"
        assert blend.member("popularity").settings.exponent == 0.5
        given = Blend(member_settings={"popularity": {"exponent": 1.0}})
        assert given.member("popularity").settings.exponent == 1.0

    def test_new_users_explanations_and_vectors_have_it(self):
        model = Blend(members=("popularity", "ials"), member_settings={"ials": MEMBER_SETTINGS["ials"]}, tune=False)
        model.fit(PARTS.train, choices=chosen("popularity", "ials"))
        user = PARTS.train.user_ids.ids[0].as_py()
        item = model.recommend([user], k=1).to_dicts()[0]["item_id"]
        found = model.explain(user, item)
        assert sum(found.members.values()) == pytest.approx(found.score)
        assert not model.recommend(histories={"new": [item]}, k=3).left_out
        assert model.recommender.scorer.as_embeddings().items.shape[1] == 1 + MEMBER_SETTINGS["ials"]["embedding_dim"]


class TestRefusedMembers:
    @pytest.mark.parametrize(("budget", "worth", "searched"), [(60, 10.0, False), (60, 0.0, True), (None, 10.0, True)])
    def test_within_a_budget_one_that_is_far_behind_is_not_searched(self, monkeypatch, budget, worth, searched):
        monkeypatch.setattr("rankformer.models.blend_fit.WORTH_A_SEARCH", worth)
        model = make("item-knn", "ease", "rankformer", member_settings={"rankformer": TINY}, budget=budget)
        tried = Counter(event["member"] for event in events(model.fit(PARTS.train, PARTS.valid), "trial"))
        assert tried["item-knn"] == 10, "nothing was before it"
        assert tried["ease"] == (5 if searched else 1)
        assert tried["rankformer"] == (1 if budget else 5), "dear, and searched without a bound only"

    @pytest.mark.parametrize(
        ("budget", "patience", "validations"), [(60, {}, 4), (60, {"patience": 5}, 6), (None, {}, 9)]
    )
    def test_within_a_budget_a_training_that_does_not_get_better_ends_sooner(self, budget, patience, validations):
        made = []

        class Watched(Blend):
            def member(self, name, **changes):
                made.append(super().member(name, **changes))
                return made[-1]

        still = {"epochs": 9, "validate_every": 1, "embedding_dim": 4, "learning_rate": 1e-30, **patience}
        Watched(members=("mf",), member_settings={"mf": still}, tune=False, budget=budget).fit(PARTS.train, PARTS.valid)
        [trained] = [model for model in made if events(model, "epoch")]
        assert len(events(trained, "validation")) == validations

    @pytest.mark.parametrize(
        ("given", "seconds", "tried"), [({}, 0.1, [None, "4*auto"]), ({"l2": 1e-3}, 0.1, [None]), ({}, 1e9, [None])]
    )
    def test_within_a_budget_rankformer_tries_the_regularization_that_lightgcn_chose(
        self, monkeypatch, given, seconds, tried
    ):
        fit = BlendFit.fit

        def timed(self, trial, *others):
            fit(self, trial, *others)
            trial.seconds = seconds

        monkeypatch.setattr(BlendFit, "fit", timed)
        monkeypatch.setattr("rankformer.models.lightgcn.LightGCN.ladder", {"l2": ("4*auto",)})
        settings = {"lightgcn": {**TINY, "epochs": 40, "learning_rate": 1e-3}, "rankformer": {**TINY, **given}}
        model = make("lightgcn", "rankformer", member_settings=settings)
        monkeypatch.setattr("rankformer.models.blend_fit._value", lambda trial: "l2" in trial.settings)
        found = [
            event for event in events(model.fit(PARTS.train, PARTS.valid), "trial") if event["member"] == "rankformer"
        ]
        assert [event["settings"].get("l2") for event in found] == tried

    def test_one_that_would_not_get_far_is_left_out_and_named(self):
        model = make("ials", "mf", budget=1e-6).fit(PARTS.train, PARTS.valid)
        [refused] = events(model, "refused")
        assert refused["member"] == "mf"
        assert "of the 0 s that are its share" in refused["reason"]
        report = blend_report(model.log)
        assert report["refused"] == {"mf": refused["reason"]}
        assert [member["label"] for member in report["members"]] == ["ials"]
        assert [trial["settings"] for trial in events(model, "trial")] == [{}]  # no time to search

    def test_one_that_fails_is_left_out_and_named(self):
        given = {"mf": {**TINY, "learning_rate": 1e38}}
        model = make("item-knn", "mf", member_settings=given, tune=False).fit(PARTS.train, PARTS.valid)
        assert blend_report(model.log)["refused"].keys() == {"mf"}
        assert [member.name for member in model.recommender.scorer.members] == ["item-knn"]

    def test_without_any_left_it_says_why(self):
        with pytest.raises(TrainingError, match=r"no member of the blend could be fitted; mf would take about"):
            make("mf", budget=1e-3).fit(PARTS.train, PARTS.valid)


class TestWeightsOfInteractions:
    WEIGHTED = replace(
        PARTS.train, weights=np.random.default_rng(0).integers(1, 6, len(PARTS.train)).astype(np.float32)
    )

    def fit(self, member, train):
        return make(member, tune=False).fit(train, PARTS.valid)

    def test_they_reach_the_members_that_use_them_and_no_others(self):
        for member in ("ials", "slim"):
            same = torch.equal(scores_of(self.fit(member, self.WEIGHTED)), scores_of(self.fit(member, PARTS.train)))
            assert same != model_class(member).uses_weights

    @pytest.mark.parametrize("member", ["item-knn", "slim"])
    def test_a_saved_member_counts_as_it_did(self, member, tmp_path):
        model = self.fit(member, self.WEIGHTED)
        model.save(tmp_path / "run")
        again = Blend.load(tmp_path / "run")
        assert torch.equal(scores_of(again), scores_of(model))
        found = again.explain(3, 5)
        whole = sum(reason.contribution for reason in found.reasons)
        assert whole + found.user_contribution + found.global_contribution == pytest.approx(found.score, abs=1e-6)
        assert found.score == pytest.approx(float(scores_of(model)[3, 5]), abs=1e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fit_killed_in_the_middle_of_a_member_ends_as_if_never_disturbed(tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("blend_kill_worker.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {kill["in_a_member"] for kill in report["kills"]} == {True, False}
    assert {kill["killed"] for kill in report["kills"]} == {True}
    for kill in report["kills"]:
        assert kill["outcome"] == report["undisturbed"], kill["after"]
