"""Checkpoints: whole or absent after any crash, refused after any change."""

import json
import os
import signal

import pytest
import torch

from rankformer.errors import RunFolderError
from rankformer.runs.checkpoint import CheckpointStore, checkpoint_epoch, remove_checkpoint
from rankformer.runs.checksums import checksummed_json

IDENTITY = {"model": "rankformer", "settings": {"epochs": 9, "parts": (1, 2)}, "seed": 3, "train": "ab" * 32}


def tensors_of(value):
    return {
        "network.table": torch.full((20, 4), float(value)),
        "adam.0.step": torch.tensor(float(value)),
        "best.table": torch.arange(6.0).reshape(2, 3).T,  # not contiguous
        "long": torch.tensor([2**40, -1]),
    }


@pytest.fixture
def store(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoint", IDENTITY)
    store.save(5, tensors_of(5), {"epoch": 5, "best_value": 0.25, "best": None})
    return store


def names(store):
    return sorted(path.name for path in store.folder.iterdir())


def value_in(store):
    """The value that the loaded checkpoint was made from, checked to be of one piece."""
    tensors, numbers = store.load()
    wanted = tensors_of(numbers["epoch"])
    assert tensors.keys() == wanted.keys()
    assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)
    return numbers["epoch"]


def test_what_was_saved_comes_back_bit_for_bit(store):
    tensors, numbers = store.load()
    assert numbers == {"epoch": 5, "best_value": 0.25, "best": None}
    for name, wanted in tensors_of(5).items():
        assert torch.equal(tensors[name], wanted)
        assert tensors[name].dtype == wanted.dtype


def test_there_is_none_before_the_first_save_and_none_after_removal(tmp_path, store):
    assert CheckpointStore(tmp_path / "elsewhere", IDENTITY).load() is None
    assert checkpoint_epoch(store.folder) == 5
    remove_checkpoint(store.folder)
    assert store.load() is None
    assert checkpoint_epoch(store.folder) is None
    assert not store.folder.exists()
    remove_checkpoint(store.folder)  # a second time is no error


def test_a_new_checkpoint_replaces_the_old_and_clears_what_crashes_left(store):
    (store.folder / ".epoch-00000006.safetensors.x1.tmp").write_bytes(b"half")
    (store.folder / ".latest.json.x2.tmp").write_bytes(b"{")
    (store.folder / "epoch-00000004.safetensors").write_bytes(b"old")
    assert value_in(store) == 5
    store.save(6, tensors_of(6), {"epoch": 6})
    assert value_in(store) == 6
    assert names(store) == ["epoch-00000006.safetensors", "latest.json"]


def test_a_second_checkpoint_of_one_epoch_does_not_touch_the_first_before_it_counts(store, monkeypatch):
    """As a blend saves them: while a member is trained, the number of finished trials stays."""
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "_write_index", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            store.save(5, tensors_of(7), {"epoch": 7})
    assert value_in(store) == 5
    store.save(5, tensors_of(7), {"epoch": 7})
    assert value_in(store) == 7
    assert len(names(store)) == 2


def test_files_that_are_not_ours_are_left_alone(store):
    (store.folder / "notes.txt").write_text("mine")
    (store.folder / "epoch-5.safetensors").write_bytes(b"mine")  # ours have eight digits
    (store.folder / ".epoch-00000006.safetensors.x1.tmp").write_bytes(b"half")
    (store.folder / "latest.json.d").mkdir()
    remove_checkpoint(store.folder)
    assert names(store) == ["epoch-5.safetensors", "latest.json.d", "notes.txt"]


def test_a_link_to_a_folder_elsewhere_is_left_alone(store, tmp_path):
    (tmp_path / "link").symlink_to(store.folder)
    remove_checkpoint(tmp_path / "link")
    assert value_in(store) == 5


def crash_at(monkeypatch, name, call):
    """Make the given call of os.<name> fail, counted from 0; return how often it was called."""
    real, calls = getattr(os, name), []

    def failing(*arguments, **options):
        calls.append(name)
        if len(calls) == call + 1:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, failing)
    return calls


@pytest.mark.parametrize("name", ["replace", "fsync", "open", "chmod"])
def test_a_save_that_fails_at_any_call_leaves_the_old_or_the_new(tmp_path, monkeypatch, name):
    outcomes = []
    for call in range(100):
        store = CheckpointStore(tmp_path / str(call), IDENTITY)
        store.save(5, tensors_of(5), {"epoch": 5})
        with monkeypatch.context() as patch:
            calls = crash_at(patch, name, call)
            try:
                store.save(6, tensors_of(6), {"epoch": 6})
                finished = True
            except OSError:
                finished = False
        outcomes.append(value_in(store))
        store.save(7, tensors_of(7), {"epoch": 7})
        assert value_in(store) == 7
        assert names(store) == ["epoch-00000007.safetensors", "latest.json"]
        if finished:
            break
    assert len(calls) == call, "the loop reached past the last call"
    assert call >= 2, f"os.{name} is not what makes a save safe any more; patch what is"
    assert outcomes[0] == 5
    assert outcomes[-1] == 6
    assert outcomes == sorted(outcomes)


def test_the_very_first_save_failing_leaves_no_checkpoint_or_a_whole_one(tmp_path, monkeypatch):
    for call in range(4):
        store = CheckpointStore(tmp_path / str(call), IDENTITY)
        with monkeypatch.context() as patch:
            crash_at(patch, "fsync", call)
            with pytest.raises(OSError, match="No space"):
                store.save(1, tensors_of(1), {"epoch": 1})
        assert store.load() is None or value_in(store) == 1


def test_a_flipped_bit_in_any_byte_of_the_pointer_is_refused_by_name(store):
    pointer = store.folder / "latest.json"
    whole = pointer.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        pointer.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=r"latest\.json"):
            store.load()


def test_flipped_bits_of_the_tensors_are_refused_by_name(store):
    path = store.folder / "epoch-00000005.safetensors"
    whole = path.read_bytes()
    for position in [*range(0, len(whole), 5), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=r"epoch-00000005\.safetensors is damaged"):
            store.load()


@pytest.mark.parametrize("name", ["latest.json", "epoch-00000005.safetensors"])
def test_truncation_and_growth_are_refused_by_name(store, name):
    path = store.folder / name
    whole = path.read_bytes()
    for damaged in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"\n", whole + whole):
        path.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=name):
            store.load()


def test_missing_tensors_are_refused_by_name(store):
    (store.folder / "epoch-00000005.safetensors").unlink()
    with pytest.raises(RunFolderError, match=r"epoch-00000005\.safetensors is missing.*without --resume"):
        store.load()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"seed": 4}, "its seed is 3, this one's is 4"),
        ({"model": "lightgcn"}, 'its model is "rankformer", this one\'s is "lightgcn"'),
        ({"settings": {"epochs": 10, "parts": (1, 2)}}, "its settings"),
        ({"valid": "cd"}, 'its valid is null, this one\'s is "cd"'),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_in_one_line(store, change, complaint):
    other = CheckpointStore(store.folder, {**IDENTITY, **change})
    with pytest.raises(RunFolderError, match=complaint) as caught:
        other.load()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(store.folder))


def test_a_tuple_in_the_identity_is_what_json_made_of_it(store):
    same = CheckpointStore(store.folder, json.loads(json.dumps(IDENTITY)))
    assert same.load() is not None


@pytest.mark.parametrize("file", ["../outside.safetensors", "sub/inside.safetensors", "", ".", None, 5])
def test_a_pointer_to_another_place_is_refused(store, file):
    (store.folder.parent / "outside.safetensors").write_bytes(b"x")
    content = json.loads((store.folder / "latest.json").read_bytes())
    content.pop("checksum")
    (store.folder / "latest.json").write_bytes(checksummed_json({**content, "file": file}))
    with pytest.raises(RunFolderError, match="missing"):
        store.load()


@pytest.mark.parametrize("name", ["file", "sha256", "identity", "numbers"])
def test_a_pointer_without_a_part_is_refused_by_name(store, name):
    content = json.loads((store.folder / "latest.json").read_bytes())
    del content["checksum"], content[name]
    (store.folder / "latest.json").write_bytes(checksummed_json(content))
    with pytest.raises(RunFolderError, match=r"latest\.json"):
        store.load()
