"""Run folders: what goes in comes out, and whatever is not what went in is refused by name."""

import ast
import json
import os
import random
import shutil
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import rankformer
from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import RunFolderError
from rankformer.files import sha256_of
from rankformer.models.ease import EASE
from rankformer.models.gf_cf import GFCF
from rankformer.models.ials import IALS
from rankformer.models.popularity import Popularity
from rankformer.models.rankformer import Rankformer
from rankformer.models.registry import load_model
from rankformer.runs.checksums import checksummed_json
from rankformer.runs.manifest import EVALUATION, FILES, MANIFEST, is_run, read_manifest
from rankformer.runs.model_card import CARD
from rankformer.runs.saved import Run, load_run, save_run
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender

USERS, ITEMS, DIM = 6, 9, 4
ITEM_IDS = pa.array([f"item-{number}" for number in range(ITEMS)])


def make_run(seed=0, user_ids=None, item_ids=ITEM_IDS, titles=None, **changes):
    user_map, item_map = IdMap(user_ids if user_ids is not None else pa.array(range(USERS))), IdMap(item_ids)
    n, m = len(user_map), len(item_map)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    users, items = rng.integers(0, n, 20).astype(np.int32), rng.integers(0, m, 20).astype(np.int32)
    history = Interactions(users, items, user_map, item_map, item_titles=titles, name=f"log-{seed}")
    vectors = [torch.randn(size, DIM, generator=generator) for size in (n, m)]
    given = {
        "model": "toy",
        "settings": {"strength": seed},
        "seed": seed,
        "recommender": Recommender(Embeddings(*vectors), user_map, item_map, history),
        "parameters": {"table": torch.randn(n + m, DIM, generator=generator)},
        "log": [{"event": "epoch", "epoch": 1, "loss": 0.5 + seed}, {"event": "validation", "text": "☃\u2028"}],
        "data": {"source": "ütf"},
        "metrics": {"ndcg@20": 0.25},
        "protocol": {"mask": "train"},
        "versions": {"rankformer": "0"},
    }
    return Run(**{**given, **changes})


@pytest.fixture
def folder(tmp_path):
    save_run(tmp_path / "run", make_run())
    return tmp_path / "run"


def lists_of(run, k=5):
    return run.recommender.recommend(k=k).table


def assert_equal_runs(got, wanted):
    assert (got.model, got.settings, got.seed, got.log) == (wanted.model, wanted.settings, wanted.seed, wanted.log)
    assert (got.metrics, got.protocol, got.versions) == (wanted.metrics, wanted.protocol, wanted.versions)
    assert wanted.data.items() <= got.data.items()
    assert got.recommender.user_ids == wanted.recommender.user_ids
    assert got.recommender.item_ids == wanted.recommender.item_ids
    assert torch.equal(got.recommender.scorer.users, wanted.recommender.scorer.users)
    assert torch.equal(got.recommender.scorer.items, wanted.recommender.scorer.items)
    assert got.recommender.history.fingerprint == wanted.recommender.history.fingerprint
    assert got.recommender.history.name == wanted.recommender.history.name
    assert got.parameters.keys() == wanted.parameters.keys()
    assert all(torch.equal(got.parameters[name], wanted.parameters[name]) for name in wanted.parameters)
    assert lists_of(got).equals(lists_of(wanted))


ID_KINDS = {
    "integers": pa.array([5, -3, 2**62, 0, 7, 11]),
    "small integers": pa.array([5, 3, 2, 0, 7, 11], type=pa.uint8()),
    "strings": pa.array(["a", "", " b", "c,d", 'e"f', "g\nh"]),
    "unicode": pa.array(["naïve", "☃", "日本", "e\u0301", "é", "\U0001f600"]),
    "large strings": pa.array(["a", "b", "c", "d", "e", "f"], type=pa.large_string()),
    "bytes": pa.array([b"\x00", b"\xff\xfe", b"", b"\x00\x00", b"a", b"\x80"]),
    "microseconds": pa.array([datetime(2020, 1, day) for day in range(1, 7)]),
    "seconds": pa.array(range(6), type=pa.timestamp("s")),
    "nanoseconds": pa.array(range(6), type=pa.timestamp("ns")),
    "milliseconds with a zone": pa.array(range(6), type=pa.timestamp("ms", tz="Europe/Paris")),
    "days": pa.array([date(2020, 1, day) for day in range(1, 7)]),
    "days in milliseconds": pa.array([day * 86_400_000 for day in range(6)], type=pa.date64()),
    "times of day": pa.array(range(6), type=pa.time32("s")),
    "numbers": pa.array([0.5, -1.0, 3.25, 1e300, 5e-324, 7.0]),
    "decimals": pa.array([Decimal(number) / 4 for number in range(6)]),
}


@pytest.mark.parametrize("kind", ID_KINDS)
def test_ids_of_any_kind_come_back_with_the_same_lists(tmp_path, kind):
    run = make_run(user_ids=ID_KINDS[kind], item_ids=ID_KINDS[kind].take(pa.array([5, 3, 1, 0, 4])))
    save_run(tmp_path / "run", run)
    assert_equal_runs(load_run(tmp_path / "run"), run)


def test_a_run_comes_back_whole(folder):
    assert_equal_runs(load_run(folder), make_run())


def test_titles_come_back(tmp_path):
    titles = pa.array(["Titel ☃", None, *[f"t{number}" for number in range(ITEMS - 2)]])
    run = make_run(titles=titles)
    save_run(tmp_path / "run", run)
    got = load_run(tmp_path / "run")
    assert got.recommender.titles.equals(titles)
    assert lists_of(got).column("title").equals(lists_of(run).column("title"))


def test_no_log_and_no_parameters_are_fine(tmp_path):
    run = make_run(log=[], parameters={})
    save_run(tmp_path / "run", run)
    assert_equal_runs(load_run(tmp_path / "run"), run)


def test_tensors_that_share_memory_are_saved(tmp_path):
    run = make_run()
    run = make_run(parameters={"a": run.recommender.scorer.users, "b": run.recommender.scorer.users.T})
    save_run(tmp_path / "run", run)
    assert_equal_runs(load_run(tmp_path / "run"), run)


def flipped(data, position, bit):
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


def positions_in(data, count):
    chosen = random.Random(0).sample(range(len(data)), min(count, len(data)))
    return sorted({0, 1, len(data) - 2, len(data) - 1, *chosen})


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_any_flipped_bit_is_refused_by_name(folder, name):
    whole = (folder / name).read_bytes()
    positions = positions_in(whole, 120)
    if name == MANIFEST:
        positions += [place for place, byte in enumerate(whole) if byte in b" \n"][::5]
    for position in positions:
        (folder / name).write_bytes(flipped(whole, position, position % 8))
        with pytest.raises(RunFolderError, match=name):
            load_run(folder)
    (folder / name).write_bytes(whole)
    load_run(folder)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_truncation_growth_and_absence_are_refused_by_name(folder, name):
    whole = (folder / name).read_bytes()
    for damaged in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"\0", whole + b"\n"):
        (folder / name).write_bytes(damaged)
        with pytest.raises(RunFolderError, match=name):
            load_run(folder)
    (folder / name).unlink()
    with pytest.raises(RunFolderError, match=name):
        load_run(folder)
    (folder / name).mkdir()
    with pytest.raises(RunFolderError, match=name):
        load_run(folder)


def test_files_of_two_runs_do_not_mix(folder, tmp_path):
    save_run(tmp_path / "other", make_run(seed=1))
    for name in FILES:
        kept = (folder / name).read_bytes()
        shutil.copy(tmp_path / "other" / name, folder / name)
        if (folder / name).read_bytes() != kept:
            with pytest.raises(RunFolderError, match=name):
                load_run(folder)
        (folder / name).write_bytes(kept)


def rewrite(folder, change=lambda manifest: None):
    """Write the manifest again, as one who wants to be believed would: every checksum is right."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    del manifest["checksum"]
    for name in FILES:
        manifest["files"][name] = {"sha256": sha256_of(folder / name), "size": (folder / name).stat().st_size}
    manifest = change(manifest) or manifest
    (folder / MANIFEST).write_bytes(checksummed_json(manifest))


def drop(manifest, name):
    return {key: value for key, value in manifest.items() if key != name}


def write_history(folder, users, items):
    pq.write_table(pa.table({"user": users, "item": items}), folder / "history.parquet")


@pytest.mark.parametrize(
    ("users", "items"),
    [
        ([0, USERS], [0, 0]),
        ([0, -1], [0, 0]),
        ([0, 1], [0, ITEMS]),
        ([0, 1], [0, -1]),
        ([0, 1], [0, 2**32]),
        ([0, None], [0, 1]),
        ([0.0, 1.0], [0, 1]),
        ([0.0, float("nan")], [0, 1]),
        (["0", "1"], [0, 1]),
        ([True, False], [0, 1]),
        ([[0], [1]], [0, 1]),
    ],
)
def test_a_history_that_points_nowhere_is_refused_though_its_checksum_is_right(folder, users, items):
    write_history(folder, users, items)
    rewrite(folder)
    with pytest.raises(RunFolderError, match=r"history\.parquet"):
        load_run(folder)


@pytest.mark.parametrize(
    "weights",
    [
        pa.array([1.0, 0.0], pa.float32()),
        pa.array([1.0, -2.0], pa.float32()),
        pa.array([1.0, float("nan")], pa.float32()),
        pa.array([1.0, float("inf")], pa.float32()),
        pa.array([1.0, None], pa.float32()),
        pa.array([1.0, 2.0], pa.float64()),
        pa.array(["1", "2"]),
    ],
)
def test_a_history_with_weights_that_cannot_count_is_refused_though_its_checksum_is_right(folder, weights):
    pq.write_table(pa.table({"user": [0, 1], "item": [0, 1], "weight": weights}), folder / "history.parquet")
    rewrite(folder)
    with pytest.raises(RunFolderError, match=r"history\.parquet.*weights must be"):
        load_run(folder)


@pytest.fixture
def evaluated(tmp_path):
    """A run that knows more than it was fitted on, and keeps the lists that were evaluated."""
    plain = make_run().recommender
    known = Interactions(
        np.append(plain.history.users, np.int32([0, 1])),
        np.append(plain.history.items, np.int32([3, 4])),
        plain.user_ids,
        plain.item_ids,
        labels=np.repeat(np.int8([0, 1, 2]), [20, 1, 1]),
    )
    recommender = Recommender(plain.scorer, plain.user_ids, plain.item_ids, plain.history, known=known)
    lists, protocol = np.array([[3, -1]]), {"mask": "train", "split": "log/test"}
    run = make_run(recommender=recommender, lists=lists, refit={"interactions": 22}, protocol=protocol)
    save_run(tmp_path / "run", run)
    return tmp_path / "run"


def test_what_is_known_and_what_was_evaluated_come_back(evaluated):
    run, plain = load_run(evaluated), make_run()
    assert len(run.recommender.known) == 22
    assert run.recommender.history.fingerprint == plain.recommender.history.fingerprint
    assert [len(part) for part in run.parts] == [20, 1, 1]
    assert run.lists.tolist() == [[3, -1]]
    assert run.refit == {"interactions": 22}
    assert run.evaluate_again(["recall@2"]).protocol.split == "log/test"
    with pytest.raises(RunFolderError, match="too short for a cutoff of 3"):
        run.evaluate_again(["recall@3"])
    with pytest.raises(RunFolderError, match="which interactions are its test part"):
        assert plain.parts
    save_run(evaluated, plain)
    assert not (evaluated / EVALUATION).exists()
    assert load_run(evaluated).lists is None


def test_damaged_lists_are_refused_by_name(evaluated):
    whole = (evaluated / EVALUATION).read_bytes()
    for damaged in (flipped(whole, len(whole) // 2, 3), whole[:-1], b""):
        (evaluated / EVALUATION).write_bytes(damaged)
        with pytest.raises(RunFolderError, match=EVALUATION):
            load_run(evaluated)
    (evaluated / EVALUATION).unlink()
    with pytest.raises(RunFolderError, match=EVALUATION):
        load_run(evaluated)


@pytest.mark.parametrize("lists", [[[ITEMS, 0]], [[-2, 0]], [[0.5, 1.0]], [[None, 1]], ["a"], [[0], [1, 2]]])
def test_lists_that_point_nowhere_are_refused_though_their_checksum_is_right(evaluated, lists):
    column = pa.array(lists)
    if len({len(each) for each in lists}) == 1 and not isinstance(lists[0], str):
        column = column.cast(pa.list_(column.type.value_type, len(lists[0])))
    pq.write_table(pa.table({"items": column}), evaluated / EVALUATION)

    def believed(manifest):
        path = evaluated / EVALUATION
        manifest["files"][EVALUATION] = {"sha256": sha256_of(path), "size": path.stat().st_size}

    rewrite(evaluated, believed)
    with pytest.raises(RunFolderError, match=EVALUATION):
        load_run(evaluated)


@pytest.mark.parametrize(
    "columns",
    [
        {"part": pa.array([0, 3], pa.int8())},
        {"part": pa.array([0, -1], pa.int8())},
        {"part": pa.array([0, 1], pa.int64())},
        {"part": pa.array([0, None], pa.int8())},
        {"part": pa.array(["0", "1"])},
        {"fitted": pa.array([1, 0], pa.int8())},
        {"fitted": pa.array([True, None])},
    ],
)
def test_parts_that_cannot_be_are_refused_though_their_checksum_is_right(folder, columns):
    pq.write_table(pa.table({"user": [0, 1], "item": [0, 1], **columns}), folder / "history.parquet")
    rewrite(folder)
    with pytest.raises(RunFolderError, match=r"history\.parquet"):
        load_run(folder)


def test_known_interactions_that_leave_out_fitted_ones_are_not_saved(tmp_path):
    plain = make_run().recommender
    known = plain.history.rows(np.arange(len(plain.history))[::-1])
    recommender = Recommender(plain.scorer, plain.user_ids, plain.item_ids, plain.history, known=known)
    with pytest.raises(RunFolderError, match="must begin with those the model was fitted on"):
        save_run(tmp_path / "run", make_run(recommender=recommender))


def change_tensors(folder, change):
    tensors = load_file(folder / "embeddings.safetensors")
    change(tensors)
    save_file(tensors, folder / "embeddings.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("users"),
        lambda tensors: tensors.pop("items"),
        lambda tensors: tensors.update(users=torch.zeros(USERS + 1, DIM)),
        lambda tensors: tensors.update(items=torch.zeros(ITEMS - 1, DIM)),
        lambda tensors: tensors.update(items=torch.zeros(ITEMS, DIM + 1)),
        lambda tensors: tensors.update(items=torch.zeros(ITEMS)),
        lambda tensors: tensors.update(items=torch.full((ITEMS, DIM), float("nan"))),
        lambda tensors: tensors.update(users=torch.full((USERS, DIM), float("inf"))),
        lambda tensors: tensors.update(users=torch.zeros(USERS, DIM, dtype=torch.int64)),
        lambda tensors: tensors.update(items=torch.zeros(ITEMS, DIM, dtype=torch.float16)),
        lambda tensors: tensors.update(items=torch.zeros(ITEMS, DIM, dtype=torch.float64)),
    ],
)
def test_embeddings_that_do_not_fit_are_refused_though_their_checksum_is_right(folder, change):
    change_tensors(folder, change)
    rewrite(folder)
    with pytest.raises(RunFolderError, match=r"embeddings\.safetensors"):
        load_run(folder)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("users.parquet", {"id": [0, 1, 2, 3, 4, 4]}),
        ("users.parquet", {"id": [0, 1, 2, 3, 4, None]}),
        ("users.parquet", {"other": [0, 1, 2, 3, 4, 5]}),
        ("items.parquet", {"id": [*range(ITEMS - 1), 0]}),
        ("items.parquet", {"title": ["t"] * ITEMS}),
        ("items.parquet", {"id": range(ITEMS), "title": range(ITEMS)}),
    ],
)
def test_ids_that_cannot_be_are_refused_though_their_checksum_is_right(folder, name, columns):
    pq.write_table(pa.table({key: pa.array(list(values)) for key, values in columns.items()}), folder / name)
    rewrite(folder)
    with pytest.raises(RunFolderError, match=name):
        load_run(folder)


@pytest.mark.parametrize(
    "columns",
    [
        {"neighbours": [[ITEMS]]},
        {"neighbours": [[-1]]},
        {"neighbours": [["item-1"]]},
        {"neighbours": [[None]]},
        {"weights": [[0.5, 0.5]]},
        {"weights": [[float("nan")]]},
        {"weights": [["much"]]},
        {"new": [True, *[False] * ITEMS]},
        {"new": [*[False] * ITEMS, None]},
        {"new": [0] * ITEMS + [1]},
        {"cold": [0] * ITEMS + [1]},
        {"cold": [False] * (ITEMS + 1)},
    ],
)
def test_cold_items_that_cannot_be_are_refused_though_their_checksum_is_right(folder, columns):
    right = {
        "id": [f"item-{number}" for number in range(ITEMS + 1)],
        "attribute.price": list(range(ITEMS + 1)),
        "new": [*[False] * ITEMS, True],
        "cold": [*[False] * ITEMS, True],
        "neighbours": [[2]],
        "weights": [[1.0]],
    }

    def write(changed):
        padded = {name: [[]] * ITEMS + values if len(values) == 1 else values for name, values in changed.items()}
        pq.write_table(pa.table(padded), folder / "items.parquet")
        rewrite(folder)

    write(right)
    recommender = load_run(folder).recommender
    assert recommender.recommend([0], 1, where="cold").to_dicts()[0]["item_id"] == f"item-{ITEMS}"
    write(right | columns)
    with pytest.raises(RunFolderError, match=r"items\.parquet"):
        load_run(folder)


@pytest.mark.parametrize("name", FILES)
def test_rubbish_is_refused_by_name_though_its_checksum_is_right(folder, name):
    for rubbish in (b"", b"PAR1", b"rubbish\n", b"\xff" * 100, (10**12).to_bytes(8, "little") + b"{}"):
        if name == "log.jsonl" and not rubbish:
            continue  # an empty log is a log
        (folder / name).write_bytes(rubbish)
        rewrite(folder)
        with pytest.raises(RunFolderError, match=name):
            load_run(folder)


@pytest.mark.parametrize("part", ["files", "model", "settings", "seed", "data", "metrics", "protocol", "versions"])
@pytest.mark.parametrize("value", ["absent", None, [], "text"])
def test_a_manifest_without_a_part_is_refused_by_name(folder, part, value):
    if (part, value) == ("model", "text"):
        return

    def change(manifest):
        if value == "absent":
            del manifest[part]
        else:
            manifest[part] = value

    rewrite(folder, change)
    with pytest.raises(RunFolderError, match=r"manifest\.json"):
        load_run(folder)


@pytest.mark.parametrize("change", [{"version": 3}, {"version": "2"}, {"version": None}, {"format": "other"}])
def test_another_format_or_version_is_refused(folder, change):
    rewrite(folder, lambda manifest: {**manifest, **change})
    with pytest.raises(RunFolderError, match="this package reads rankformer-run versions 1 and 2"):
        load_run(folder)


def test_a_manifest_that_leaves_a_file_out_is_refused(folder):
    rewrite(folder, lambda manifest: manifest["files"].pop("history.parquet") and None)
    with pytest.raises(RunFolderError, match=r"manifest\.json does not list history\.parquet"):
        load_run(folder)


def test_what_is_not_a_run_says_so(tmp_path):
    with pytest.raises(RunFolderError, match="is not a folder"):
        load_run(tmp_path / "nothing")
    with pytest.raises(RunFolderError, match=r"has no manifest\.json: it is not a run folder"):
        load_run(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(RunFolderError, match="has not finished, continue it with --resume"):
        read_manifest(tmp_path)


def test_a_saved_run_replaces_the_one_before_and_clears_what_crashes_left(folder):
    (folder / ".users.parquet.abc.tmp").write_bytes(b"half")
    (folder / ".manifest.json.abc.tmp").write_bytes(b"{")
    (folder / "notes.txt").write_text("mine")
    save_run(folder, make_run(seed=1))
    assert_equal_runs(load_run(folder), make_run(seed=1))
    assert sorted(os.listdir(folder)) == sorted([*FILES, MANIFEST, CARD, "notes.txt"])


@pytest.mark.parametrize("name", ["replace", "fsync"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_save_that_fails_at_any_call_leaves_a_whole_run_or_none(tmp_path, monkeypatch, name, fresh):
    real = getattr(os, name)
    for call in range(100):
        folder, count = tmp_path / str(call), [0]
        if not fresh:
            save_run(folder, make_run(seed=0))

        def failing(*arguments, call=call, count=count):
            count[0] += 1
            if count[0] == call + 1:
                raise OSError("disk full")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            try:
                save_run(folder, make_run(seed=1))
                finished = True
            except OSError:
                finished = False
        try:
            found = load_run(folder)
        except RunFolderError:
            assert not finished
        else:
            assert_equal_runs(found, make_run(seed=found.seed))
        assert list(folder.glob(".*.tmp")) == []
        if finished:
            break
        save_run(folder, make_run(seed=1))
        assert_equal_runs(load_run(folder), make_run(seed=1))
    assert call >= len(FILES)


def test_only_what_can_be_loaded_is_saved_and_a_refusal_keeps_the_old_run(folder):
    class Scores(Embeddings):
        kind = "of another package"

        def metadata(self):
            return {"kind": self.kind}

    run = make_run()
    old = run.recommender
    scorer = Scores(old.embeddings.users, old.embeddings.items)
    run = make_run(recommender=Recommender(scorer, old.user_ids, old.item_ids, old.history))
    with pytest.raises(
        RunFolderError, match=r"'of another package'.* cannot be saved; known are embeddings, aspects, blend, sp"
    ):
        save_run(folder, run)
    assert is_run(folder)
    assert_equal_runs(load_run(folder), make_run())


WEIGHTS = {
    "sparse": EASE(regularization=1, keep=3),
    "dense": EASE(regularization=1, keep=None, duplicates="count"),
    "dual": EASE(regularization=1, keep=None, duplicates="count"),
    "graph-filter": GFCF(factors=3),
}


@pytest.fixture(params=WEIGHTS)
def weighted(request, tmp_path):
    """A run that scores by weights between items, and the model it holds."""
    users = pa.array(range(ITEMS)) if request.param == "dense" else None  # fewer users than items have the dual form
    model = WEIGHTS[request.param].fit(make_run(user_ids=users).recommender.history)
    assert model.recommender.scorer.matrix.kind == request.param
    model.save(tmp_path / "weighted")
    return tmp_path / "weighted", model


def test_weights_between_items_come_back(weighted):
    folder, model = weighted
    assert read_manifest(folder)["scorer"] == model.recommender.scorer.metadata()
    got = load_run(folder)
    assert lists_of(got).equals(model.recommend(k=5).table)
    assert got.recommender.can_fold_in
    everyone = torch.arange(USERS)
    assert torch.equal(got.recommender.scorer.scores(everyone), model.recommender.scorer.scores(everyone))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.clear(),
        lambda tensors: tensors.pop(next(iter(tensors))),
        lambda tensors: tensors.update({name: value[:-1] for name, value in tensors.items()}),
        lambda tensors: tensors.update({name: value.double() for name, value in tensors.items()}),
        lambda tensors: tensors.update({name: (value / 0).to(value.dtype) for name, value in tensors.items()}),
        lambda tensors: tensors.update({name: value[None] for name, value in tensors.items()}),
    ],
)
def test_weights_that_do_not_fit_are_refused_though_their_checksum_is_right(weighted, change):
    folder, _ = weighted
    change_tensors(folder, change)
    rewrite(folder)
    with pytest.raises(RunFolderError, match=r"embeddings\.safetensors"):
        load_run(folder)


@pytest.mark.parametrize("scorer", ["absent", None, "sparse"])
def test_a_manifest_without_a_scorer_is_refused_by_name(weighted, scorer):
    folder, _ = weighted
    rewrite(folder, lambda manifest: {**manifest, "scorer": scorer} if scorer != "absent" else drop(manifest, "scorer"))
    with pytest.raises(RunFolderError, match=r"manifest\.json"):
        load_run(folder)


@pytest.mark.parametrize(
    "scorer",
    [
        {},
        {"kind": "embeddings"},
        {"kind": ["sparse"]},
        {"kind": "pickle", "count_duplicates": False},
        {"kind": "sparse", "count_duplicates": 1},
        {"kind": "graph-filter", "count_duplicates": False, "weight": None},
        {"kind": "graph-filter", "count_duplicates": False, "weight": "heavy"},
    ],
)
def test_a_manifest_that_misdescribes_its_scorer_is_refused(weighted, scorer):
    folder, _ = weighted
    rewrite(folder, lambda manifest: {**manifest, "scorer": scorer})
    with pytest.raises(RunFolderError, match=r"embeddings\.safetensors"):
        load_run(folder)


def with_rule(manifest, rule):
    return {**manifest, "scorer": {**manifest["scorer"], "fold_in": rule}}


def test_weights_between_items_have_nothing_to_fold_into(weighted):
    folder, _ = weighted
    rule = {"rule": "least-squares", "weight": 2, "regularization": 1}
    rewrite(folder, lambda manifest: with_rule(manifest, rule))
    with pytest.raises(RunFolderError, match="scorer has no 'fold_in'"):
        load_run(folder)


@pytest.mark.parametrize("change", [{"weight": 0.5}, {"weight": None}, {"regularization": "x"}, {"rule": "other"}])
def test_a_least_squares_rule_that_cannot_be_is_refused(tmp_path, change):
    IALS(embedding_dim=3).fit(make_run().recommender.history).save(tmp_path / "run")
    assert load_run(tmp_path / "run").recommender.can_explain
    rewrite(tmp_path / "run", lambda manifest: with_rule(manifest, {**manifest["scorer"]["fold_in"], **change}))
    with pytest.raises(RunFolderError, match=r"embeddings\.safetensors"):
        load_run(tmp_path / "run")


def test_a_model_refuses_the_run_of_another_method(tmp_path):
    Popularity().fit(make_run().recommender.history).save(tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"holds a popularity model, not rankformer; use rankformer\.load_model"):
        Rankformer.load(tmp_path / "run")
    assert isinstance(load_model(tmp_path / "run"), Popularity)


def test_a_run_of_an_unknown_method_is_refused(folder):
    with pytest.raises(RunFolderError, match="'toy', which is neither built in nor installed"):
        load_model(folder)


@pytest.fixture
def trained(tmp_path):
    Rankformer(epochs=1, embedding_dim=4, num_layers=1).fit(make_run().recommender.history).save(tmp_path / "trained")
    return tmp_path / "trained"


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("network.table"),
        lambda tensors: tensors.update({"network.table": torch.zeros(3, 3)}),
        lambda tensors: tensors.update({"network.extra": torch.zeros(3)}),
    ],
)
def test_parameters_that_do_not_fit_the_method_are_refused(trained, change):
    change_tensors(trained, change)
    rewrite(trained)
    with pytest.raises(RunFolderError, match="do not fit a rankformer network"):
        load_model(trained)


@pytest.mark.parametrize(
    "settings", [{"unknown_setting": 1}, {"tau": 7}, {"seed": 3}, {"device": "cuda"}, {"negatives": "pull"}]
)
def test_settings_that_do_not_fit_the_method_are_refused(trained, settings):
    rewrite(trained, lambda manifest: {**manifest, "settings": {**manifest["settings"], **settings}})
    with pytest.raises(ValueError) as caught:  # every UserError is one
        load_model(trained)
    assert type(caught.value).__module__ == "rankformer.errors"


FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {"torch.load", "torch.save", "np.load", "numpy.load", "pd.read_pickle", "pandas.read_pickle"}
FORBIDDEN_METHODS |= {"yaml.load", "yaml.full_load", "yaml.unsafe_load"}  # safe_load makes nothing but plain values
FORBIDDEN_OPTIONS = {"allow_pickle"}


def test_nothing_in_the_package_can_execute_what_it_reads():
    for path in Path(rankformer.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.name}:{getattr(node, 'lineno', '?')}"
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & FORBIDDEN_MODULES, where
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, where
            elif isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in FORBIDDEN_CALLS | FORBIDDEN_METHODS, f"{where} calls {name}"
                assert not {option.arg for option in node.keywords} & FORBIDDEN_OPTIONS, where
