import numpy as np
import pytest

from rankformer.data.parts import Parts
from rankformer.models.ease import EASE
from rankformer.models.lightgcn import LightGCN
from rankformer.models.matrix_factorization import MatrixFactorization
from rankformer.models.popularity import Popularity
from rankformer.models.rankformer import Rankformer
from rankformer.planning import plan as planning
from rankformer.planning.plan import extrapolated, forecast, make_plan
from rankformer.planning.probe import Cost

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def parts(invented):
    def make(validates=True, sizes=(60, 40, 600)):
        log = invented(*sizes)
        few = np.arange(len(log)) < len(log) // 20
        return Parts(log.rows(~few), log.rows(few & validates), log.rows(np.zeros(len(log), bool)))

    return make


@pytest.fixture
def probes(monkeypatch):
    """Replaces measuring: a fit takes 1 kB and 1 microsecond per interaction; notes every sample and change."""
    seen = []

    def probe(model, train, valid, changes):
        seen.append((len(train), changes))
        divisor = 64 // changes.get("embedding_dim", 64) * (2 if "activations" in changes else 1)
        return Cost(len(train), 1000 * len(train) // divisor, 1e-6 * len(train), 1e-6 * len(train), 0.0)

    monkeypatch.setattr(planning, "probe", probe)
    return seen


class TestExtrapolation:
    def test_a_polynomial_is_continued(self):
        points = [(size, 5 + 2 * size) for size in (10, 40, 160)]
        assert extrapolated(points, 1000, 1) == pytest.approx(2005)
        points = [(size, 1 + 0.5 * size + 0.25 * size**2) for size in (10, 40, 160)]
        assert extrapolated(points, 1000, 2) == pytest.approx(1 + 500 + 250_000)

    def test_what_was_measured_is_returned_as_it_is(self):
        assert extrapolated([(10, 3.0), (40, 99.0)], 40, 1) == 99.0

    def test_no_coefficient_is_negative(self):
        assert extrapolated([(10, 1.0), (40, 4.4)], 400, 1) == pytest.approx(42, rel=0.1)
        assert extrapolated([(10, 4.0), (40, 1.0)], 400, 1) > 0

    def test_zeros_stay_zero(self):
        assert extrapolated([(10, 0.0), (40, 0.0)], 400, 2) == pytest.approx(0, abs=1e-6)

    def test_one_point_grows_with_the_highest_power(self):
        assert extrapolated([(10, 1.0)], 40, 2) == pytest.approx(16)


class TestForecast:
    def cost(self, size, epoch):
        return Cost(size, size, 0.0, epoch, 0.0)

    def test_a_full_batch_epoch_is_one_step(self):
        costs = [self.cost(size, 1e-6 * size) for size in (10_000, 40_000)]
        assert forecast(Rankformer(), costs, 10**6).epoch == pytest.approx(1.0)

    def test_steps_become_longer_and_more(self):
        """A step of a graph model propagates over the whole log, so mini-batch epochs grow with its square."""
        costs = [self.cost(size, 1e-6 * size * -(-size // 1000)) for size in (10_000, 40_000)]
        assert forecast(LightGCN(batch_size=1000), costs, 10**6).epoch == pytest.approx(1000.0)

    def test_batches_larger_than_a_sample_shrink_with_it(self):
        costs = [self.cost(size, 10e-6 * size) for size in (20_000, 80_000)]
        assert forecast(LightGCN(batch_size=100_000), costs, 10**6).epoch == pytest.approx(10.0)

    def test_a_matrix_of_items_by_items(self):
        costs = [Cost(size, 4 * size**2, 1e-9 * size**3, 0.0, 0.0) for size in (100, 400)]
        assert forecast(EASE(), costs, 10_000).growth == pytest.approx(4e8, rel=0.01)
        assert forecast(EASE(), costs, 10_000).setup == pytest.approx(1000, rel=0.01)


def test_a_plan_says_what_a_run_takes_at_most(parts):
    plan = make_plan(Rankformer(embedding_dim=8, num_layers=1, epochs=50, validate_every=20), parts())
    assert (plan["users"], plan["items"], plan["interactions"]) == (60, 40, 570)
    assert (plan["epochs"], plan["validations"]) == (50, 3)
    seconds = plan["seconds"]
    whole = seconds["setup"] + 50 * seconds["epoch"] + 3 * seconds["validation"]
    assert plan["seconds_in_all"] == pytest.approx(whole)
    assert min(seconds["epoch"], seconds["validation"]) > 0
    assert plan["samples"] == [570]
    assert plan["memory"]["basis"] == "measured"
    assert plan["fits"]
    assert plan["changes"] == []


def test_without_a_validation_part_nothing_is_validated(parts):
    plan = make_plan(MatrixFactorization(embedding_dim=8, epochs=50), parts(validates=False))
    assert plan["validations"] == 0
    assert plan["seconds"]["validation"] == 0


def test_a_method_without_epochs_is_solved(parts):
    plan = make_plan(Popularity(), parts())
    assert (plan["epochs"], plan["validations"], plan["seconds"]["epoch"]) == (0, 0, 0)
    assert plan["seconds_in_all"] == plan["seconds"]["setup"] > 0
    assert set(plan["memory"]["parts"]) == {"process and data", "solution"}


def test_samples_grow_until_the_log_is_whole(parts, probes):
    plan = make_plan(MatrixFactorization(), parts(sizes=(6_000, 4_000, 400_000)))
    assert [round(size, -4) for size in plan["samples"]] == [20_000, 80_000, 380_000]
    assert plan["memory"]["basis"] == "measured"


def test_a_slow_log_is_extrapolated_from_two_samples(parts, probes, monkeypatch):
    monkeypatch.setattr(planning, "LONGEST_PROBE", 0.0)
    plan = make_plan(MatrixFactorization(), parts(sizes=(6_000, 4_000, 400_000)))
    assert [round(size, -3) for size in plan["samples"]] == [5_000, 20_000]
    assert plan["memory"]["basis"] == "extrapolated"
    assert plan["memory"]["parts"]["training"] == pytest.approx(380_000_000, rel=0.01)
    assert plan["seconds"]["epoch"] == pytest.approx(0.38, rel=0.01)


def test_batches_keep_their_size_unless_a_sample_is_smaller(parts, probes, monkeypatch):
    monkeypatch.setattr(planning, "LONGEST_PROBE", 0.0)
    log = parts(sizes=(6_000, 4_000, 400_000))
    make_plan(MatrixFactorization(batch_size=2_000), log)
    assert all(changes == {} for _, changes in probes)
    probes.clear()
    make_plan(MatrixFactorization(batch_size=95_000), log)
    assert {changes["batch_size"] for _, changes in probes} == {1_250, 5_000}


def test_the_mildest_change_that_fits_comes_first(parts, probes, monkeypatch):
    monkeypatch.setattr(planning, "memory_now", lambda: 0)
    monkeypatch.setattr(planning, "peak_memory", lambda: 0)
    log = parts(sizes=(6_000, 4_000, 100_000))
    exact = make_plan(Rankformer(), log, limit=90_000_000)["changes"]
    assert exact[0]["settings"] == {"activations": "recompute"}
    assert exact[0]["peak"] == pytest.approx(95_000_000 / 2, rel=0.01)
    assert [change["peak"] for change in exact] == sorted((change["peak"] for change in exact), reverse=True)
    smaller = make_plan(Rankformer(), log, limit=40_000_000)["changes"]
    assert smaller[0]["settings"] == {"activations": "recompute", "embedding_dim": 32}
    assert make_plan(Rankformer(), log, limit=1000)["changes"] == []
    assert make_plan(MatrixFactorization(), log, limit=90_000_000)["changes"][0]["settings"] == {"embedding_dim": 32}
